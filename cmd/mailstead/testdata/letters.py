# SPDX-License-Identifier: Apache-2.0
"""What Python's mailbox module writes, and what it reads.

write DIR: DIR/letters.mbox and DIR/Maildir with a folder.
read mbox|maildir PATH: a line of JSON for each message.
"""
import hashlib
import json
import mailbox
import sys


def message(kind, n, flags):
    m = kind(f"From: ann@example.org\nSubject: {n}\nMessage-ID: <{n}@python>\n\nFrom the {n}th on.\n>From there.\n\nEnd.\n")
    m.set_flags(flags)
    if kind is mailbox.MaildirMessage:
        m.set_date(1000000000 + n)
        m.set_subdir("cur")
    else:
        m.set_from(f"ann@example.org Sun Sep  9 01:46:{40 + n} 2001")
    return m


def write(folder):
    box = mailbox.mbox(folder + "/letters.mbox")
    for n, flags in enumerate(["", "RO", "ROF", "OA", "D"]):
        box.add(message(mailbox.mboxMessage, n, flags))
    box.close()
    md = mailbox.Maildir(folder + "/Maildir")
    for n, flags in enumerate(["", "S", "FS", "RS", "D"]):
        md.add(message(mailbox.MaildirMessage, n, flags))
    md.add_folder("Work.2019").add(message(mailbox.MaildirMessage, 9, "S"))
    md.close()


def show(folder, m, flags, date):
    # What stands in the archive for other programs is no part of the message.
    text = m.as_bytes()
    print(json.dumps({
        "folder": folder, "subject": m["Subject"], "flags": "".join(sorted(flags)), "date": date,
        "body": hashlib.sha256(text[text.index(b"\n\n"):]).hexdigest(), "keywords": m["X-Keywords"] or "",
    }))


def read(kind, path):
    if kind == "mbox":
        for m in mailbox.mbox(path, create=False):
            show(m["X-Folder"] or "", m, m.get_flags(), m.get_from().split(" ", 1)[1])
        return
    md = mailbox.Maildir(path, create=False)
    for name in [""] + sorted(md.list_folders()):
        box = md if name == "" else md.get_folder(name)
        for key in sorted(box.keys()):
            m = box[key]
            show(name, m, m.get_flags(), int(m.get_date()))


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    read(sys.argv[2], sys.argv[3])
