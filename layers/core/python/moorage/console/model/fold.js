// What a log adds up to. The same sums as the server's (loop/fold.py): a test compares them over recorded logs. No DOM here.

const FINAL = new Set(["response.completed", "response.incomplete", "response.failed"]);

export const empty = () => ({ next: 0, response: null, isFinal: false, items: new Map(), done: new Set() });

export function fold(events, onto = empty()) {
  for (const event of events) apply(onto, event);
  return onto;
}

export const output = (state) => [...state.items.keys()].sort((a, b) => a - b).map((index) => state.items.get(index));

export function apply(state, event) {
  if (event.sequence_number !== state.next) throw new Error(`event ${event.sequence_number} where ${state.next} was due`);
  state.next += 1;
  if (event.response) {
    state.response = event.response;
    state.isFinal = FINAL.has(event.type);
    // An interruption leaves out what is half said.
    if (state.isFinal) for (const index of [...state.items.keys()]) if (!state.done.has(index)) state.items.delete(index);
    return;
  }
  const index = event.output_index;
  if (index == null) return;
  if (event.type === "response.output_item.added") state.items.set(index, structuredClone(event.item));
  else if (event.type === "response.output_item.done") {
    state.items.set(index, event.item);
    state.done.add(index);
  } else grow(state.items.get(index), event.type.slice("response.".length), event);
}

function grow(item, name, event) {
  switch (name) {
    case "content_part.added":
      (item.content ??= []).push({ ...event.part });
      break;
    case "content_part.done":
      item.content[event.content_index] = event.part;
      break;
    case "output_text.delta":
    case "reasoning_text.delta":
      item.content[event.content_index].text += event.delta;
      break;
    case "output_text.annotation.added": {
      const part = item.content[event.content_index];
      part.annotations = [...part.annotations, event.annotation];
      break;
    }
    case "refusal.delta":
      item.content[event.content_index].refusal += event.delta;
      break;
    case "reasoning_summary_part.added":
      item.summary.push({ ...event.part });
      break;
    case "reasoning_summary_text.delta":
      item.summary[event.summary_index].text += event.delta;
      break;
    case "function_call_arguments.delta":
    case "mcp_call_arguments.delta":
      item.arguments += event.delta;
      break;
    case "mcp_call_arguments.done":
      item.arguments = event.arguments;
      break;
    case "custom_tool_call_input.delta":
      item.input += event.delta;
      break;
    case "code_interpreter_call_code.delta":
      item.code = (item.code ?? "") + event.delta;
      break;
    case "code_interpreter_call.interpreting":
      item.status = "interpreting";
      break;
    case "shell_call_command.added":
      item.action.commands = [...item.action.commands, event.command];
      break;
    case "shell_call_command.delta":
      item.action.commands[event.command_index] += event.delta;
      break;
    case "shell_call_output_content.delta": {
      const command = commandOutput(item, event.command_index);
      for (const [stream, text] of Object.entries(event.delta)) if (text) command[stream] += text;
      break;
    }
    case "shell_call_output_content.done":
      commandOutput(item, event.command_index);
      item.output[event.command_index] = event.output[0];
      break;
    default:
  }
}

function commandOutput(item, index) {
  while (item.output.length <= index) item.output.push({ stdout: "", stderr: "", outcome: null });
  return item.output[index];
}
