// Calls that wait for a person's word. The whole of what is asked stands here: nobody decides on the beginning of a command.
import { html } from "../html.js";
import { get } from "../api.js";
import { useData } from "../ui/data.js";
import { Asked } from "../ui/asked.js";
import { Empty, Head, Missing, Problem, Skeleton } from "../ui/parts.js";

const LOOK_MS = 2000;
const EXAMPLE = `client.responses.create(
    model="demo",
    input="Run \`uname -a\`",
    background=True,
    tools=[{
        "type": "shell",
        "environment": {"type": "container_auto"},
        "require_approval": "always",
    }],
)`;

export function Approvals() {
  const list = useData((signal) => get("approvals", { limit: 100, order: "asc" }, signal), [], { every: LOOK_MS });
  if (list.isLoading) return html`<${Head} title="Approvals" /><${Skeleton} rows=${3} />`;
  if (list.status === 404) return html`<${Missing} title="Approvals" what="This deployment cannot hold calls for approval" how="It is of a version before /v1/approvals. Calls of remote MCP servers can be asked about all the same: require_approval of the tool, answered by your program." />`;
  if (list.problem && !list.data) return html`<${Head} title="Approvals" /><${Problem} message=${list.problem} onAgain=${list.reload} />`;
  const waiting = list.data.data;
  return html`<${Head} title="Approvals" note="A response pauses until you approve or deny each of its calls. A denial tells the model your reason." />
    ${waiting.length ? waiting.map((each) => html`<${Asked} key=${each.id} asked=${each} done=${list.reload} />`) : html`<${Empty} title="No call waits for approval" code=${EXAMPLE}><p>A request names the calls that wait: <code>require_approval</code> of its shell and of its remote servers. The example asks before each command.</p></${Empty}>`}`;
}
