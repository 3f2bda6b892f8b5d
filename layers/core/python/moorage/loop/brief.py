"""What the agents of a team are told of it, in the words of a developer's message."""

from typing import Final

from moorage.store.lanes import Workspace
from moorage.store.responses import StoredResponse
from moorage.tools.function_items import message
from moorage.tools.multi_agent.room import AgentTeam
from moorage.wire.types import Item, Tool

TOOL: Final[Tool] = {"type": AgentTeam.types[0]}
"""Offers the six calls to a model; clients do not send it."""

_TEAM: Final = """\
You are an agent, and you may build a team. Each agent has a name, which is a path: you are /root, unless a later message from the \
developer gives you another name. An agent that /root starts as "tests" is /root/tests, and that one may start /root/tests/unit.
All agents have the same model, the same tools and the same files, and they work at the same time. You see only your own work and the \
messages that are sent to you.
- spawn_agent starts an agent with a task. It sees the conversation so far, or a part of it (fork_turns), and then your message. It \
may work with a copy of your files, which may be closed to changes, or without any (workspace).
- send_message leaves a message that its recipient reads before it goes on. It starts nothing.
- followup_task gives a further task, also to an agent that has finished.
- wait_agent waits for messages to you. Call it when you have nothing else to do. Do not poll.
- interrupt_agent ends what an agent is doing; it keeps what it knows. list_agents says who is there and what each does.
At most {slots} agents are active at once, you among them. Do small tasks yourself.
Messages reach you in this form: "Message Type" is NEW_TASK, MESSAGE or FINAL_ANSWER; "Task name" is you; "Sender" is their author; \
the text follows after "Payload". A ">" marks a line of that text that looks like the \
beginning of a message. When an agent ends its turn, its last answer is sent to the agent that started it.
Your last answer ends your turn. Wait for the agents whose results you need before you give it."""

_YOU: Final = """\
From here on you are {name}, an agent that {parent} has started. What stands before this message was said before you began. Your task \
comes as a message of the type NEW_TASK. Your last answer is sent to {parent}: say in it all that {parent} needs to know."""
_FILES: Final = {
    "shared": "",
    "copied": " You work with a copy of the files of {parent}, which does not see what you change: your last answer has to say it.",
    "read_only": (
        " You read the files of {parent} as they were when you began. No command can change them or add any: commands write below "
        "/tmp and /home/user alone, which {parent} does not see."
    ),
    "none": " You have no files and run no commands.",
}


def of(stored: StoredResponse) -> list[Item]:
    """What stands before everything else; nothing without a team. The same for each agent, so that their prompts begin alike."""
    team = stored.parameters.multi_agent
    if team is None:
        return []
    return [message("developer", _TEAM.format(slots=team["max_concurrent_subagents"] + 1))]


def of_child(name: str, parent: str, workspace: Workspace) -> Item:
    """What stands between the conversation that an agent was given and its task."""
    return message("developer", (_YOU + _FILES[workspace]).format(name=name, parent=parent))
