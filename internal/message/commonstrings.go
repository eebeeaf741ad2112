// SPDX-License-Identifier: Apache-2.0

package message

// commonStrings are the most frequent strings in an index. Their positions are part of the stored
// form: add new ones only at the end.
var commonStrings = [...]string{
	"", "text", "plain", "html", "multipart", "alternative", "mixed", "related",
	"message", "rfc822", "application", "octet-stream", "pdf", "image", "png", "jpeg", "gif",
	"charset", "utf-8", "us-ascii", "iso-8859-1", "boundary", "name", "filename", "format", "flowed",
	"7bit", "8bit", "binary", "quoted-printable", "base64", "attachment", "inline",
	"signed", "report", "delivery-status", "rfc822-headers", "calendar", "method", "UTF-8", "delsp", "yes",
	"micalg", "protocol", "type", "size", "filename*", "name*", "no", "windows-1252", "digest",
}

// maxCommonString is the length of the longest string that internString knows.
const maxCommonString = len("quoted-printable")

// internedStrings are the strings that nearly every message has.
var internedStrings = func() map[string]string {
	interned := map[string]string{}
	for _, s := range []string{
		"text", "plain", "html", "multipart", "alternative", "mixed", "related", "charset", "utf-8", "boundary", "7bit", "8bit",
		"quoted-printable", "base64", "attachment", "inline", "filename", "name", "application", "image",
	} {
		interned[s] = s
	}
	return interned
}()

// internString returns b as one of internedStrings, without allocating.
func internString(b []byte) (s string, ok bool) {
	s, ok = internedStrings[string(b)]
	return s, ok
}
