// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"strings"
	"unicode"
)

// asciiReplacer replaces accented letters and typographic quotes with ASCII, since hosts use both
// forms.
var asciiReplacer = strings.NewReplacer(
	"à", "a", "á", "a", "â", "a", "ã", "a", "ä", "a", "å", "a", "ç", "c", "è", "e", "é", "e", "ê", "e", "ë", "e", "ì", "i", "í", "i",
	"î", "i", "ï", "i", "ñ", "n", "ò", "o", "ó", "o", "ô", "o", "õ", "o", "ö", "o", "ø", "o", "ù", "u", "ú", "u", "û", "u", "ü", "u",
	"ý", "y", "ß", "ss", "’", "'", "‘", "'", "`", "'", "“", `"`, "”", `"`, "„", `"`,
)

// normalize converts a text to one lower-case line with single spaces, without the reply codes that
// begin continuation lines.
func normalize(s string) string {
	s = asciiReplacer.Replace(strings.ToLower(s))
	var out strings.Builder
	out.Grow(len(s))
	first := true
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return unicode.IsSpace(r) || r < ' ' || r == 0x7f || r == '\u200b' || r == '\u00ad' }) {
		if !first {
			word = trimReplyCode(word)
			if word == "" {
				continue
			}
			out.WriteByte(' ')
		}
		first = false
		out.WriteString(word)
	}
	return out.String()
}

// trimReplyCode removes a code from the start of a word: all of "550-5.1.1", or "550-" of
// "550-the".
func trimReplyCode(word string) string {
	if len(word) < 4 || word[3] != '-' || !isReplyCode(word[:3]) {
		return word
	}
	rest := word[4:]
	if n := enhancedPrefixLen(rest); n > 0 && n == len(rest) {
		return ""
	}
	return rest
}

// cleanDiagnostic returns a text as one line of at most maxDiagnostic bytes.
func cleanDiagnostic(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxDiagnostic {
		s = strings.ToValidUTF8(s[:maxDiagnostic], "")
	}
	return s
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isReplyCode(s string) bool {
	return len(s) == 3 && (s[0] == '4' || s[0] == '5') && s[1] >= '0' && s[1] <= '7' && isDigit(s[2])
}

// enhancedPrefixLen returns the length of the status code (RFC 3463 §2) at the start of s, or 0. An
// IP address of four numbers is not a code.
func enhancedPrefixLen(s string) int {
	if len(s) < 5 || s[0] != '2' && s[0] != '4' && s[0] != '5' || s[1] != '.' {
		return 0
	}
	i := 2
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	if i == 2 || i > 5 || i >= len(s) || s[i] != '.' {
		return 0
	}
	start := i + 1
	i = start
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	if i == start || i-start > 3 || i+1 < len(s) && s[i] == '.' && isDigit(s[i+1]) {
		return 0
	}
	return i
}

// findEnhanced returns the first specific status code in a text, or else the first generic one.
func findEnhanced(s string) string {
	found := ""
	for i := 0; i < len(s); i++ {
		if !isDigit(s[i]) || i > 0 && (isDigit(s[i-1]) || s[i-1] == '.' || isLetter(s[i-1])) {
			continue
		}
		n := enhancedPrefixLen(s[i:])
		if n == 0 || i+n < len(s) && isLetter(s[i+n]) {
			continue
		}
		code := s[i : i+n]
		if !isGenericCode(code) {
			return code
		}
		if found == "" {
			found = code
		}
		i += n
	}
	return found
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// findReply returns the codes of the reply that a text quotes.
func findReply(s string) (code int, enhanced string) {
	for i := 0; i+3 <= len(s); i++ {
		if !isDigit(s[i]) || i > 0 && !strings.ContainsRune(" \n\t:;(<>[\"'=#", rune(s[i-1])) || !isReplyCode(s[i:i+3]) {
			continue
		}
		rest := s[i+3:]
		if rest != "" && !strings.ContainsRune(" -\n\t:;,)]\"'", rune(rest[0])) && rest[0] != '#' {
			continue
		}
		code = int(s[i]-'0')*100 + int(s[i+1]-'0')*10 + int(s[i+2]-'0')
		enhanced = findEnhanced(rest)
		if enhanced == "" || enhanced[0] != s[i] && isGenericCode(enhanced) {
			enhanced = findEnhanced(s)
		}
		return code, ignoreSuccess(enhanced)
	}
	return 0, ignoreSuccess(findEnhanced(s))
}

func ignoreSuccess(enhanced string) string {
	if strings.HasPrefix(enhanced, "2.") {
		return ""
	}
	return enhanced
}

// Stages of the SMTP dialog at which a host may reject.
const (
	StageConnect = "connect"
	StageMail    = "mail"
	StageRcpt    = "rcpt"
	StageData    = "data"
	StageFinal   = "final" // after the message
)

// stagePatterns are the phrases by which reports name the stage (normalized text).
var stagePatterns = []struct{ says, stage string }{
	{"in reply to end of data", StageFinal}, {"after end of data", StageFinal}, {"failed after i sent the message", StageFinal},
	{"in reply to data", StageFinal}, {"after data", StageFinal}, {"after pipelined end of data", StageFinal},
	{"in reply to rcpt to", StageRcpt}, {"after rcpt to", StageRcpt}, {"does not like recipient", StageRcpt}, {"after pipelined rcpt to", StageRcpt},
	{">>> rcpt to:", StageRcpt}, {"--> rcpt to:* <-- 5", StageRcpt}, {"did not like our rcpt to", StageRcpt}, {"after rcpt command", StageRcpt}, {"[rcpt_to]", StageRcpt}, {"smtp command rcpt", StageRcpt},
	{"did not like our data", StageFinal}, {"after data command", StageFinal}, {"[data]", StageFinal}, {"smtp command data", StageFinal}, {"did not like our mail from", StageMail},
	{"in reply to mail from", StageMail}, {"after mail from", StageMail}, {"but sender was rejected", StageMail}, {"after pipelined mail from", StageMail},
	{"in reply to ehlo", StageConnect}, {"in reply to helo", StageConnect}, {"after initial connection", StageConnect}, {"after helo", StageConnect},
	{"after ehlo", StageConnect}, {"refused to talk to me", StageConnect}, {"while receiving the initial server greeting", StageConnect},
	{"connected to * but greeting failed", StageConnect},
}

// findStage returns the stage at which a reply came, or "" if the text doesn't say.
func findStage(text string) string {
	if i := strings.Index(text, "<<< 5"); i >= 0 {
		// sendmail's transcript: the last command before the first refusal
		if at := strings.LastIndex(text[:i], ">>> "); at >= 0 {
			command := text[at+4:]
			stages := map[string]string{"data": StageFinal, "mail": StageMail, "rcpt": StageRcpt, "helo": StageConnect, "ehlo": StageConnect}
			if stage := stages[command[:min(4, len(command))]]; stage != "" {
				return stage
			}
		}
	}
	for _, s := range stagePatterns {
		if containsPhrase(text, s.says) {
			return s.stage
		}
	}
	return ""
}

// containsPhrase reports whether a text contains a phrase; "*" matches anything.
func containsPhrase(text, phrase string) bool {
	for {
		piece, rest, more := strings.Cut(phrase, "*")
		i := strings.Index(text, piece)
		if i < 0 {
			return false
		}
		if !more {
			return true
		}
		text, phrase = text[i+len(piece):], rest
	}
}

// findAddress returns the first mail address in a text, or "".
func findAddress(s string) string {
	for from := 0; ; {
		at := strings.IndexByte(s[from:], '@')
		if at < 0 {
			return ""
		}
		at += from
		start := at
		for start > 0 && at-start < 64 && isLocalByte(s[start-1]) {
			start--
		}
		end := at + 1
		for end < len(s) && end-at < 256 && isDomainByte(s[end]) {
			end++
		}
		domain := strings.Trim(s[at+1:end], ".-")
		local := strings.TrimLeft(s[start:at], "'=/")
		if i := strings.LastIndexByte(local, ':'); i >= 0 {
			local = local[i+1:]
		}
		if local != "" && len(domain) > 1 {
			return local + "@" + domain
		}
		from = at + 1
	}
}

func isLocalByte(c byte) bool {
	return c > ' ' && c != 0x7f && !strings.ContainsRune(`<>()[]",;\@`, rune(c)) || c >= 0x80
}

func isDomainByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '.' || c == '-' || c >= 0x80
}
