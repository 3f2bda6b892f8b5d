// Comma-separated values (RFC 4180), as far as they are shown. No DOM here.

export function csv(text, separator, most) {
  const rows = [];
  let row = [];
  let cell = "";
  let isQuoted = false;
  for (let at = 0; at < text.length && rows.length < most; at += 1) {
    const mark = text[at];
    if (isQuoted) {
      if (mark !== '"') cell += mark;
      else if (text[at + 1] === '"') {
        cell += '"';
        at += 1;
      } else isQuoted = false;
    } else if (mark === '"' && cell === "") isQuoted = true;
    else if (mark === separator) {
      row.push(cell);
      cell = "";
    } else if (mark === "\n") {
      rows.push([...row, cell]);
      row = [];
      cell = "";
    } else if (mark !== "\r") cell += mark;
  }
  if ((cell || row.length) && rows.length < most) rows.push([...row, cell]);
  return rows;
}
