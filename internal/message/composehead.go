// SPDX-License-Identifier: Apache-2.0

package message

import "strings"

// appendHeader writes the draft's header fields up to MIME-Version. It reports whether they contain
// raw UTF-8.
func (d *Draft) appendHeader(w *fieldWriter) (needsUTF8 bool) {
	addresses := func(name string, list []Address) {
		if len(list) > 0 {
			w.begin(name)
			w.addresses(list)
			w.end()
		}
		for _, a := range list {
			needsUTF8 = needsUTF8 || a.nonASCII()
		}
	}
	w.field("Date", d.Date.Format(DateFormat))
	addresses("From", []Address{d.From})
	addresses("Reply-To", d.ReplyTo)
	addresses("To", d.To)
	addresses("Cc", d.Cc)
	if len(d.To)+len(d.Cc) == 0 {
		w.field("To", "undisclosed-recipients:;")
	}
	w.begin("Subject")
	w.unstructured(d.Subject)
	w.end()
	w.field("Message-ID", d.MessageID)
	w.field("In-Reply-To", d.InReplyTo)
	ids := d.References
	if len(ids) > maxOwnReferences {
		ids = append([]string{ids[0]}, ids[len(ids)-maxOwnReferences+1:]...)
	}
	if len(ids) > 0 {
		w.begin("References")
		for _, id := range ids {
			w.put(id)
			needsUTF8 = needsUTF8 || !isASCII(id)
		}
		w.end()
	}
	d.Unsubscribe.appendTo(w)
	for _, f := range d.ExtraFields {
		w.begin(f.Name)
		w.unstructured(f.Value)
		w.end()
	}
	w.field("MIME-Version", "1.0")
	return needsUTF8 || !isASCII(d.MessageID) || !isASCII(d.InReplyTo)
}

// Fields returns the header fields, with CRLF.
func (u ListUnsubscribe) Fields() []byte {
	var w fieldWriter
	u.appendTo(&w)
	return w.dst
}

func (u ListUnsubscribe) appendTo(w *fieldWriter) {
	if u.URL == "" && u.Mailto == "" {
		return
	}
	w.begin("List-Unsubscribe")
	if u.URL != "" {
		w.put("<" + u.URL + ">")
	}
	if u.Mailto != "" {
		if u.URL != "" {
			w.putNoSpace(",")
		}
		mailto := u.Mailto
		if !strings.HasPrefix(strings.ToLower(mailto), "mailto:") {
			mailto = "mailto:" + mailto
		}
		w.put("<" + mailto + ">")
	}
	w.end()
	if u.OneClick || strings.HasPrefix(strings.ToLower(u.URL), "https://") {
		w.field("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")
	}
}
