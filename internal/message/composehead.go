// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// appendHeader writes the draft's own header up to MIME-Version. It reports
// whether raw UTF-8 stands in it.
func (d *Draft) appendHeader(w *fieldWriter) (needsUTF8 bool) {
	field := func(name, value string) {
		if value != "" {
			w.begin(name)
			w.put(value)
			w.end()
		}
	}
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
	field("Date", d.Date.Format(DateFormat))
	addresses("From", []Address{d.From})
	addresses("Reply-To", d.ReplyTo)
	addresses("To", d.To)
	addresses("Cc", d.Cc)
	if len(d.To)+len(d.Cc) == 0 {
		field("To", "undisclosed-recipients:;")
	}
	w.begin("Subject")
	w.text(d.Subject)
	w.end()
	field("Message-ID", d.MessageID)
	field("In-Reply-To", d.InReplyTo)
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
	d.Unsubscribe.append(w)
	for _, f := range d.Extra {
		w.begin(f.Name)
		w.text(f.Value)
		w.end()
	}
	field("MIME-Version", "1.0")
	return needsUTF8 || !isASCII(d.MessageID) || !isASCII(d.InReplyTo)
}

func (u Unsubscribe) append(w *fieldWriter) {
	if u.URL == "" && u.Mailto == "" {
		return
	}
	w.begin("List-Unsubscribe")
	if u.URL != "" {
		w.put("<" + u.URL + ">")
	}
	if u.Mailto != "" {
		if u.URL != "" {
			w.glue(",")
		}
		mailto := u.Mailto
		if !strings.HasPrefix(strings.ToLower(mailto), "mailto:") {
			mailto = "mailto:" + mailto
		}
		w.put("<" + mailto + ">")
	}
	w.end()
	if u.OneClick || strings.HasPrefix(strings.ToLower(u.URL), "https://") {
		w.begin("List-Unsubscribe-Post")
		w.put("List-Unsubscribe=One-Click")
		w.end()
	}
}

// filename writes the filename parameter: plain if it is short ASCII, else
// the RFC 2231 form after a plain one for old readers.
func (w *fieldWriter) filename(name string) {
	const longest = 60
	name = strings.ToValidUTF8(name, "\uFFFD")
	if name == "" {
		return
	}
	w.glue(";")
	if isPlain(name) && len(name) <= longest && !strings.Contains(name, "=?") {
		w.put("filename=" + quote(name))
		return
	}
	w.put("filename=" + quote(asciiName(name, longest)))
	rest := percentEncode(name)
	if line := "filename*=utf-8''" + rest; len(line) < foldAt-2 {
		w.glue(";")
		w.put(line)
		return
	}
	for i := 0; rest != ""; i++ {
		prefix := "filename*" + strconv.Itoa(i) + "*="
		if i == 0 {
			prefix += "utf-8''"
		}
		n := min(len(rest), foldAt-2-len(prefix))
		// An encoded octet stays whole.
		if n < len(rest) && rest[n-1] == '%' {
			n--
		} else if n < len(rest) && rest[n-2] == '%' {
			n -= 2
		}
		w.glue(";")
		w.put(prefix + rest[:n])
		rest = rest[n:]
	}
}

// asciiName returns a name of at most limit printable ASCII characters with
// the extension of name.
func asciiName(name string, limit int) string {
	ext := ""
	if i := strings.LastIndexByte(name, '.'); i > 0 && len(name)-i <= 10 {
		name, ext = name[:i], name[i:]
	}
	plain := func(s string) string {
		var b strings.Builder
		for _, r := range s {
			if r < ' ' || r > '~' || strings.ContainsRune(`"\=?%/`, r) {
				r = '_'
			}
			b.WriteRune(r)
		}
		return b.String()
	}
	name, ext = plain(name), plain(ext)
	return name[:min(len(name), limit-utf8.RuneCountInString(ext))] + ext
}
