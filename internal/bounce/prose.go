// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// originalMarkers are the lines before the returned original, as normalized text without dashes and
// the like.
var originalMarkers = []string{
	"below this line is a copy of the message", "this is a copy of", "original message", "original message follows", "returned message", "message header follows",
	"message headers follow", "unsent message below", "undelivered message follows", "returned text follows", "the original message was", "your original message",
	"original message text", "message text follows", "unsent message follows", "begin returned message", "message contents", "header of the original message",
	"original header follows", "returned message follows", "the following is a copy", "received header of original", "the header of the original message is following", "enclosed is a copy", "included is a copy", "original mail info",
	"here is a copy of the first part of the message", "mail text follows", "original mail header", "text of original message", "original message header", "headers of the original message",
	"--- original", "copy of the message, including all the headers", "below is a copy of the original message", "the following message", "attached is your message", "original message headers",
	"transcript of message follows", "message follows",
}

// splitOriginal splits a text into the report for people and the returned original.
func splitOriginal(text string) (human, returned string) {
	at := 0
	for at < len(text) {
		end := strings.IndexByte(text[at:], '\n')
		if end < 0 {
			end = len(text)
		} else {
			end += at + 1
		}
		line := text[at:end]
		if at > 0 && (isOriginalMarker(line) && headerFollows(text[end:]) || startsReturnedHeader(line, text[end:])) {
			kept := originalPartLen(line)
			return text[:end-kept], text[end-kept:] // the line may contain the reason
		}
		at = end
	}
	return text, ""
}

// isOriginalMarker reports whether a line announces the original.
func isOriginalMarker(line string) bool {
	if len(line) > 200 {
		return false
	}
	line = strings.ToLower(strings.Trim(line, " \t\r\n-=_*+.:#|>"))
	return slices.ContainsFunc(originalMarkers, func(m string) bool { return strings.Contains(line, m) })
}

// headerFollows reports whether a header follows within a few lines.
func headerFollows(rest string) bool {
	lines := 0
	for line := range strings.SplitSeq(rest[:min(len(rest), 4096)], "\n") {
		line = strings.TrimLeft(line, " \t>|")
		if line == "" {
			continue
		}
		if isOriginalHeaderLine(line) {
			return true
		}
		if lines++; lines > 3 {
			return false
		}
	}
	return false
}

// originalFields are fields of a returned header that no delivery status has.
var originalFields = []string{"received:", "return-path:", "message-id:", "from:", "subject:", "mime-version:", "dkim-signature:", "x-mailer:", "delivered-to:", "x-originating-ip:", "date:", "to:", "x-yahoo"}

func isOriginalHeaderLine(line string) bool {
	return slices.ContainsFunc(originalFields, func(f string) bool { return len(line) > len(f) && strings.EqualFold(line[:len(f)], f) })
}

// startsReturnedHeader reports whether a line begins a returned header without a marker: "Received:
// from" or "Return-Path:", with more fields after it.
func startsReturnedHeader(line, rest string) bool {
	line = strings.TrimLeft(line, " \t>|")
	starts := len(line) > 10 && (strings.EqualFold(line[:9], "received:") && (strings.Contains(line, "from") || strings.Contains(line, "by")) || len(line) > 12 && strings.EqualFold(line[:12], "return-path:"))
	return starts && headerFollows(rest)
}

// originalPartLen returns how much of a line belongs to the returned original.
func originalPartLen(line string) int {
	if isOriginalHeaderLine(strings.TrimLeft(line, " \t>|")) {
		return len(line)
	}
	return 0
}

// prose returns the text for people, without the returned original.
func (p *reportParts) prose() string {
	words := strings.Join(p.texts, "\n")
	return strings.ToValidUTF8(words[:min(len(words), maxProse)], "")
}

// readProse parses a message without a delivery status.
func (p *reportParts) readProse(r *Report, words string) {
	text := normalize(words)
	subject := normalize(p.header.Decoded("Subject"))
	daemon := fromDaemon(p.header)
	named := p.header.Unfolded("X-Failed-Recipients") != ""
	// A reply repeats the subject of the original, which may be "Delivery status".
	titled := named || isBounceSubject(subject) && (daemon || !isReplySubject(subject))
	code, enhanced := findReply(words)
	said := isFailureText(text) || titled && code >= 400 && enhanced != ""
	failed := titled || said
	switch auto := p.isAutoReply(subject); {
	case auto && !failed, auto && !daemon && !named && !(titled && said): // an out-of-office message may mention delivery
		r.Kind = AutoReply
		return
	case !daemon && !failed:
		return
	case !daemon && !titled && enhanced == "" && isReplySubject(subject): // a person asks why an item was not delivered
		return
	}
	switch {
	case isDelayText(text, subject):
		r.Kind = Delay
	case isSuccessText(text, subject):
		r.Kind = Success
		return
	default:
		r.Kind = Failure
	}
	r.Recipients = p.proseRecipients(words)
	if to := &r.Recipients[0]; !failed && to.Subtype == General && to.Code == 0 {
		r.Kind, r.Recipients = Unknown, nil // a person at a postmaster's address wrote it
	}
}

// proseRecipients returns the recipients that a text mentions, at least one.
func (p *reportParts) proseRecipients(words string) []Recipient {
	var all []Recipient
	var named []string
	for a := range strings.SplitSeq(p.header.Unfolded("X-Failed-Recipients"), ",") {
		if a := findAddress(a); a != "" && len(named) < maxRecipients {
			named = append(named, a)
		}
	}
	sections := splitByRecipient(words)
	if len(sections) == 0 {
		sections = []section{{text: words}}
	}
	common := words
	if len(sections) > 1 { // a text about one recipient doesn't apply to others
		at := strings.Index(words, sections[0].address)
		common, _, _ = strings.Cut(words[:max(at, 0)], transcriptMarker)
	}
	plain := normalize(common)
	for _, s := range sections {
		all = append(all, s.recipient(common, plain))
	}
	if len(all) == 1 && len(named) == 1 {
		all[0].Address = named[0]
	} else if len(all) == 1 && all[0].Address == "" {
		all[0].Address = p.guessAddress(words)
	}
	return all
}

// guessAddress returns the first address in a text that is not the report's own recipient.
func (p *reportParts) guessAddress(words string) string {
	to := findAddress(p.header.Unfolded("To"))
	for range 10 {
		a := findAddress(words)
		if a == "" {
			return ""
		}
		if !strings.EqualFold(a, to) && !strings.EqualFold(a, findAddress(p.original.Unfolded("From"))) {
			return a
		}
		words = words[strings.Index(words, a)+len(a):]
	}
	return ""
}

// section is the part of a text about one recipient.
type section struct {
	address string
	text    string
}

func (s *section) recipient(words, plain string) Recipient {
	r := Recipient{Address: s.address, Diagnostic: cleanDiagnostic(s.text)}
	r.Code, r.Enhanced = findReply(s.text)
	own := normalize(s.text)
	a := Reply{Stage: cmp.Or(findStage(own), findStage(plain)), Code: r.Code, Enhanced: r.Enhanced, Text: own}
	if r.Classification = a.classify(); r.Subtype != General && !r.uncertain {
		return r
	}
	if r.Code == 0 && r.Enhanced == "" {
		r.Code, r.Enhanced = findReply(words)
	}
	b := Reply{Stage: a.Stage, Code: r.Code, Enhanced: r.Enhanced, Text: own + " " + plain}
	if v := b.classify(); v.Subtype != General {
		r.Classification = v
	}
	return r
}

func (s *section) add(line string) {
	if len(s.text) < maxDiagnostic {
		s.text += "\n" + line
	}
}

// splitByRecipient splits a text at lines that begin with an address, and sendmail's transcript at
// lines about a recipient.
func splitByRecipient(words string) []section {
	listed, session, transcript := strings.Cut(words, transcriptMarker)
	all := splitAtAddresses(listed)
	for i := len(all) - 2; i >= 0; i-- { // several addresses share a reason
		if bare := strings.Trim(all[i].text, " \t\r\n<>*-|"); bare == all[i].address && !transcript {
			all[i].add(all[i+1].text)
		}
	}
	if transcript {
		all = splitTranscript(all, session)
	}
	return all
}

func splitAtAddresses(words string) []section {
	var all []section
	sender := false // "A message sent by", before the address in the next line
	for line := range strings.SplitSeq(words, "\n") {
		if sender && strings.TrimSpace(line) != "" {
			sender = false
			continue
		}
		sender = sender || strings.HasSuffix(strings.ToLower(strings.TrimRight(line, " :\r")), " sent by")
		a, n := leadingAddress(line), len(all)
		switch {
		case a != "" && n < maxRecipients && (n == 0 || all[n-1].address != a):
			all = append(all, section{address: a, text: line})
		case n > 0:
			all[n-1].add(line)
		}
	}
	return all
}

// transcriptMarker is the line before sendmail's transcript of a session, which covers all
// recipients. The list before it may lack reasons, and old versions have no list.
const transcriptMarker = "----- Transcript of session follows -----"

// givenUpPattern matches a line of the transcript with a recipient's final failure.
var givenUpPattern = regexp.MustCompile(`^\s*5\d\d[ -](?:5\.\d+\.\d+ )?<?([^\s<>()]+@[^\s<>()]+?)>?\.\.\. `)

// splitTranscript adds to each recipient its part of the transcript: the failure and the dialog
// before it.
func splitTranscript(all []section, session string) []section {
	known := len(all)
	before := ""
	for line := range strings.SplitSeq(session, "\n") {
		if talks := strings.TrimLeft(line, " ."); len(talks) > 13 && strings.EqualFold(talks[:13], "while talking") {
			before = "" // another host's session
		}
		m := givenUpPattern.FindStringSubmatch(line)
		if m == nil {
			if len(before) < maxDiagnostic {
				before += line + "\n"
			}
			continue
		}
		i := slices.IndexFunc(all, func(s section) bool { return strings.EqualFold(s.address, m[1]) })
		if i < 0 && known == 0 && len(all) < maxRecipients { // an existing list is complete
			i = len(all)
			all = append(all, section{address: m[1]})
		}
		if i >= 0 {
			all[i].add(before + line)
		}
		before = ""
	}
	if len(all) == 1 {
		all[0].add(before)
	}
	return all
}

// leadingAddress returns the address that a line begins with, or "".
func leadingAddress(line string) string {
	line = strings.TrimLeft(line, " \t<>*-|")
	word := line
	if i := strings.IndexAny(line, " \t>:;,("); i >= 0 {
		word = line[:i]
	}
	if !strings.Contains(word, "@") {
		return ""
	}
	return findAddress(word)
}

// sectionFor returns the normalized part of a text about a recipient, or all of the text if it has
// no such part.
func sectionFor(words, final, original string) string {
	for _, s := range splitByRecipient(words) {
		if strings.EqualFold(s.address, final) || strings.EqualFold(s.address, original) {
			return normalize(s.text)
		}
	}
	return normalize(words)
}
