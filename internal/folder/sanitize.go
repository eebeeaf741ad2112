// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// SpecialUseOf returns the special use that a folder's name implies, according to the names that
// servers and clients use in several languages; "" for none.
func SpecialUseOf(name string) string {
	switch strings.ToLower(name) {
	case "sent", "sent items", "sent messages", "sent mail", "sent-mail", "gesendet", "gesendete elemente", "gesendete objekte",
		"éléments envoyés", "messages envoyés", "envoyés", "enviados", "elementos enviados", "posta inviata", "inviati", "verzonden", "verzonden items", "wysłane", "отправленные":
		return Sent
	case "drafts", "draft", "entwürfe", "brouillons", "borradores", "bozze", "concepten", "rascunhos", "kopie robocze", "черновики":
		return Drafts
	case "junk", "spam", "junk e-mail", "junk email", "junk mail", "bulk mail", "spamverdacht", "junk-e-mail", "courrier indésirable", "indésirables",
		"correo no deseado", "posta indesiderata", "ongewenste e-mail", "спам":
		return Junk
	case "trash", "deleted items", "deleted messages", "deleted", "bin", "papierkorb", "gelöscht", "gelöschte elemente", "gelöschte objekte",
		"corbeille", "éléments supprimés", "papelera", "elementos eliminados", "cestino", "posta eliminata", "prullenbak", "verwijderde items", "kosz", "корзина":
		return Trash
	case "archive", "archives", "archiv", "archivo", "archivio", "archief":
		return Archive
	}
	return ""
}

// SanitizeLevel turns one level of a name into a valid one.
func SanitizeLevel(level string) string {
	level = norm.NFC.String(strings.ToValidUTF8(level, "_"))
	level = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == Separator || r == '\u2028' || r == '\u2029' {
			return '_'
		}
		return r
	}, level)
	if level == "" {
		return "_"
	}
	return level
}

// FlattenName joins the excess levels of a name into one.
func FlattenName(name string) string {
	sep := string(Separator)
	levels := strings.SplitN(name, sep, MaxNameLevels)
	last := len(levels) - 1
	levels[last] = strings.ReplaceAll(levels[last], sep, "_")
	return strings.Join(levels, sep)
}

// TruncateName cuts a name to at most limit bytes. It neither cuts within a character nor leaves a
// separator at the end.
func TruncateName(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	name = strings.ToValidUTF8(name[:limit], "")
	return strings.TrimRight(name, string(Separator)+" ")
}

// SanitizeName turns any name, given by its levels, into a valid one. The result is deterministic.
func SanitizeName(levels []string) string {
	fitted := make([]string, len(levels))
	for i, level := range levels {
		fitted[i] = SanitizeLevel(level)
	}
	name := TruncateName(FlattenName(strings.Join(fitted, string(Separator))), MaxNameBytes)
	if clean, err := cleanName(name); err == nil {
		return clean
	}
	return "_"
}

// SanitizeKeywords returns the words that are valid keywords, up to the limit of one message.
func SanitizeKeywords(words []string) (fit []string) {
	for _, word := range words {
		if len(fit) < MaxKeywords && snapshot.CheckKeywords([]string{word}) == nil {
			fit = append(fit, word)
		}
	}
	return fit
}
