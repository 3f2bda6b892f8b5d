// What a zip file holds, read as far as somebody looks. No DOM here.

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const COMMENT_MAX = 65_535;

// [{ path, size, read(bytesMax) }] of a zip's files; throws for what is none.
export async function entriesOf(blob) {
  const data = new DataView(await blob.arrayBuffer());
  let end = data.byteLength - 22;
  while (end >= 0 && end >= data.byteLength - 22 - COMMENT_MAX && data.getUint32(end, true) !== END) end -= 1;
  if (end < 0 || data.getUint32(end, true) !== END) throw new Error("This is no zip file.");
  const entries = [];
  let at = data.getUint32(end + 16, true);
  for (let left = data.getUint16(end + 10, true); left > 0 && data.getUint32(at, true) === ENTRY; left -= 1) {
    const names = data.getUint16(at + 28, true);
    const path = new TextDecoder().decode(new Uint8Array(data.buffer, at + 46, names));
    const place = { method: data.getUint16(at + 10, true), packed: data.getUint32(at + 20, true), start: data.getUint32(at + 42, true) };
    if (!path.endsWith("/")) entries.push({ path, size: data.getUint32(at + 24, true), read: (bytesMax) => unpacked(data, place, bytesMax) });
    at += 46 + names + data.getUint16(at + 30, true) + data.getUint16(at + 32, true);
  }
  return entries.sort((one, other) => (one.path < other.path ? -1 : 1));
}

// No more than `bytesMax` of it is unpacked, whatever it claims to be.
async function unpacked(data, { method, packed, start }, bytesMax) {
  const from = start + 30 + data.getUint16(start + 26, true) + data.getUint16(start + 28, true);
  const bytes = new Uint8Array(data.buffer, from, packed);
  if (method === 0) return bytes.slice(0, bytesMax);
  if (method !== 8) throw new Error("It is packed in a way that browsers do not know.");
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const parts = [];
  let had = 0;
  while (had < bytesMax) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    had += value.length;
  }
  reader.cancel().catch(() => {});
  return new Uint8Array(await new Blob(parts).slice(0, bytesMax).arrayBuffer());
}
