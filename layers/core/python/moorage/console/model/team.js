// The agents of a team, whose steps and items share the log of a run. No DOM here.

// Steps of an agent are numbered within its lane (limits/teams.py).
const LANE_STEPS = 1_000_000;

// Whose item, event or step it is; null without a team.
export const agentOf = (thing) => thing.agent?.agent_name ?? null;

// Sums over the steps of each agent, in the order in which they began.
export function byAgent(steps, sum) {
  const names = [...new Set(steps.map(agentOf))].filter((name) => name !== null);
  return names.map((name) => ({ name, ...sum(steps.filter((step) => agentOf(step) === name)) }));
}

export const numberOf = (step) => step.step % LANE_STEPS;

export const inTeam = (step, words) => (agentOf(step) ? `${agentOf(step)}: ${words}` : words);

export const nameOfRound = ({ number, agent, nth }) => (agent === null ? `Round ${number + 1}` : `${agent} ${nth + 1}`);
