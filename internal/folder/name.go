// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/fault"
)

// Limits of names and folders.
const (
	MaxNameBytes  = 255 // bytes
	MaxNameLevels = 20  // levels
)

// CodeBadName is the fault code for an invalid folder name.
const CodeBadName = "bad_folder_name"

// cleanName returns a name in its stored form: NFC, with INBOX in capitals, also as the first of
// several levels (RFC 3501 §5.1). It returns a fault.Invalid for an invalid name.
func cleanName(name string) (string, error) {
	bad := func(what string) (string, error) {
		return "", fault.New(fault.Invalid, CodeBadName, "%s", what)
	}
	if !utf8.ValidString(name) {
		return bad("A folder's name must be UTF-8.")
	}
	name = norm.NFC.String(name)
	if len(name) > MaxNameBytes {
		return bad("A folder's name is too long.")
	}
	if strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }) {
		return bad("A folder's name can't have control characters.")
	}
	levels := strings.Split(name, string(Separator))
	if len(levels) > MaxNameLevels {
		return bad("Folders can't be nested that deep.")
	}
	for _, level := range levels {
		if level == "" {
			return bad("Each level of a folder's name needs a name.")
		}
	}
	if strings.EqualFold(levels[0], Inbox) {
		name = Inbox + name[len(Inbox):]
	}
	return name, nil
}

// parents returns the names of the parents of a name, the highest first.
func parents(name string) (above []string) {
	for i := range len(name) {
		if name[i] == Separator {
			above = append(above, name[:i])
		}
	}
	return above
}
