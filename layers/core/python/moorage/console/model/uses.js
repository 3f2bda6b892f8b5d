// Where a run has used a file or a skill. No DOM here.

// The objects below a value that hold this id as one of their own texts, or in a list of texts of theirs.
function* holders(value, id) {
  if (Array.isArray(value)) for (const each of value) yield* holders(each, id);
  else if (value && typeof value === "object") {
    const own = Object.values(value);
    if (own.some((each) => each === id || (Array.isArray(each) && each.includes(id)))) yield value;
    for (const each of own) yield* holders(each, id);
  }
}

const containerOf = (response) => {
  const places = [...(response.tools ?? []).map((tool) => tool.environment?.container_id ?? tool.container), ...(response.output ?? []).map((item) => item.container_id ?? item.environment?.container_id)];
  return places.find((place) => typeof place === "string") ?? null;
};

// How a run has used it, in words; empty if it has not.
export function uses(id, response, input = []) {
  const found = new Set();
  if (!holders(input, id).next().done) found.add("asked with it");
  for (const held of holders(response.tools ?? [], id)) found.add(held.skill_id === id ? `version ${held.version ?? "default"}` : "given to a tool");
  if (!holders(response.output ?? [], id).next().done) found.add("named in its answer");
  return found.size ? { how: [...found].join(", "), containerId: containerOf(response) } : null;
}
