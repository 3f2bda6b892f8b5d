// What the operator's command line is told, for what no server may do. No DOM here.

export const MEASURES = { usd: "--usd", input_tokens: "--input-tokens", output_tokens: "--output-tokens", total_tokens: "--total-tokens", tool_calls: "--tool-calls", wall_seconds: "--wall-seconds" };
export const ENDINGS = ["stop", "finish", "pause"];

const quoted = (word) => (/^[\w.:/=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

export const made = (tenant, name) => ["keys", "create", "--tenant", tenant, ...(name ? ["--name", name] : [])].map(quoted).join(" ");

// `of` is a key's id, or empty for all keys of the tenant together.
export function budget(tenant, { of, measure, limit, ending }) {
  const limited = Number(limit) > 0 ? [MEASURES[measure], String(Number(limit)), "--on-limit", ending] : [];
  return ["keys", "budget", ...(of ? [of] : ["--tenant", tenant]), ...limited].map(quoted).join(" ");
}

export const revoked = (id) => `keys revoke ${quoted(id)}`;
