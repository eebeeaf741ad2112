// SPDX-License-Identifier: Apache-2.0
//
// Reads a JSON list of From values in base64 and prints, for each reader, whom
// it takes for the authors of each value.
import fs from 'node:fs';
import thunderbird from '@protontech/jsmimeparser/lib/headerParser.js'; // Thunderbird's jsmime
import nodemailer from 'nodemailer/lib/addressparser/index.js';
import emailjs from 'emailjs-addressparser';
import rfc5322 from 'email-addresses';
import rfc2822 from 'address-rfc2822';

const flat = (list) => (list ?? []).flatMap((a) => a.group ?? [a]);

const readers = {
  thunderbird: (v) => flat(thunderbird.parseAddressingHeader(v, true)).map((a) => a.email),
  nodemailer: (v) => flat(nodemailer(v)).map((a) => a.address),
  emailjs: (v) => flat((emailjs.default ?? emailjs)(v)).map((a) => a.address),
  'email-addresses': (v) => (rfc5322.parseFrom(v) ?? []).flatMap((a) => a.addresses ?? [a]).map((a) => a.address),
  'address-rfc2822': (v) => rfc2822.parse(v).flatMap((a) => a.addresses ?? [a]).map((a) => a.address),
};

const utf8 = new TextDecoder('utf-8', { fatal: true });
function text(base64) {
  const bytes = Buffer.from(base64, 'base64');
  try {
    return utf8.decode(bytes);
  } catch {
    return bytes.toString('latin1');
  }
}

const values = JSON.parse(fs.readFileSync(0)).map(text);
const out = {};
for (const [name, read] of Object.entries(readers)) {
  out[name] = values.map((v) => {
    try {
      return read(v.replace(/\r\n/g, '')).filter((a) => typeof a === 'string');
    } catch {
      return []; // it shows nobody
    }
  });
}
process.stdout.write(JSON.stringify(out));
