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

// internString returns b as one of commonStrings.
func internString(b []byte) (string, bool) {
	switch string(b) { // the compiler compares without allocating
	case "text":
		return "text", true
	case "plain":
		return "plain", true
	case "html":
		return "html", true
	case "multipart":
		return "multipart", true
	case "alternative":
		return "alternative", true
	case "mixed":
		return "mixed", true
	case "related":
		return "related", true
	case "charset":
		return "charset", true
	case "utf-8":
		return "utf-8", true
	case "boundary":
		return "boundary", true
	case "7bit":
		return "7bit", true
	case "8bit":
		return "8bit", true
	case "quoted-printable":
		return "quoted-printable", true
	case "base64":
		return "base64", true
	case "attachment":
		return "attachment", true
	case "inline":
		return "inline", true
	case "filename":
		return "filename", true
	case "name":
		return "name", true
	case "application":
		return "application", true
	case "image":
		return "image", true
	}
	return "", false
}
