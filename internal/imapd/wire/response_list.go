// SPDX-License-Identifier: Apache-2.0

package wire

// ListData is one mailbox in the answer to LIST or LSUB.
type ListData struct {
	Attributes []string // such as \HasNoChildren, \Sent
	Separator  byte     // 0 for none
	Mailbox    string   // UTF-8
	// ChildInfo names the selection options that children match, such as
	// SUBSCRIBED (RFC 5258 §3.5).
	ChildInfo []string
	OldName   string // what it was called before RENAME (RFC 9051 §7.3.1)
}

// List is * LIST.
func (w *Writer) List(row *ListData) { w.listRow("* LIST (", row) }

// Lsub is * LSUB.
func (w *Writer) Lsub(row *ListData) { w.listRow("* LSUB (", row) }

func (w *Writer) listRow(start string, row *ListData) {
	w.Raw(start)
	for i, a := range row.Attributes {
		if i > 0 {
			w.SP()
		}
		w.Raw(a)
	}
	w.Raw(") ")
	w.separator(row.Separator)
	w.SP().Mailbox(row.Mailbox)
	if len(row.ChildInfo) > 0 || row.OldName != "" {
		w.Raw(" (")
		if len(row.ChildInfo) > 0 {
			w.Raw(`"CHILDINFO" (`)
			for i, c := range row.ChildInfo {
				if i > 0 {
					w.SP()
				}
				w.String(c)
			}
			w.Raw(")")
		}
		if row.OldName != "" {
			if len(row.ChildInfo) > 0 {
				w.SP()
			}
			w.Raw(`"OLDNAME" (`).Mailbox(row.OldName).Raw(")")
		}
		w.Raw(")")
	}
	w.CRLF()
}

// StatusData is the answer to STATUS; only the Items are written.
type StatusData struct {
	Mailbox        string
	Items          StatusItems
	Messages       uint32
	Recent         uint32
	UIDNext        uint32
	UIDValidity    uint32
	Unseen         uint32
	Deleted        uint32
	Size           uint64 // bytes
	HighestModSeq  uint64
	AppendLimit    uint64 // bytes; 0 is written as NIL: no limit
	MailboxID      string
	DeletedStorage uint64 // bytes
}

// Status is * STATUS.
func (w *Writer) Status(row *StatusData) {
	values := [...]uint64{
		uint64(row.Messages), uint64(row.Recent), uint64(row.UIDNext), uint64(row.UIDValidity),
		uint64(row.Unseen), uint64(row.Deleted), row.Size, row.HighestModSeq, row.AppendLimit, 0,
		row.DeletedStorage,
	}
	w.Raw("* STATUS ").Mailbox(row.Mailbox).Raw(" (")
	first := true
	for i, name := range statusNames {
		item := StatusItems(1) << i
		if row.Items&item == 0 {
			continue
		}
		if !first {
			w.SP()
		}
		first = false
		w.Raw(name).SP()
		switch {
		case item == StatusMailboxID:
			w.Raw("(").Raw(row.MailboxID).Raw(")")
		case item == StatusAppendLimit && row.AppendLimit == 0:
			w.Raw("NIL")
		default:
			w.Number(values[i])
		}
	}
	w.Raw(")").CRLF()
}
