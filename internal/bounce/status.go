// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"cmp"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// recipientStatus is the status of one recipient in a delivery status (RFC 3464 §2.3).
type recipientStatus struct {
	final, original string
	action          string
	code            string
	diagnostic      string
	remote          string
}

// isComplete reports whether the fields suffice for a result.
func (s *recipientStatus) isComplete() bool {
	return (s.final != "" || s.original != "" || s.action != "") && (s.action != "" || s.code != "" || s.diagnostic != "")
}

// isCertain reports whether this is certainly a delivery status. People's text may have a line like
// "Action: we will call you".
func (s *recipientStatus) isCertain() bool {
	return s.final != "" || s.original != "" || s.actionKind() != "" && findEnhanced(s.code) != ""
}

// kind returns the status of the recipient. Without a known Action, Status decides.
func (s *recipientStatus) kind() Kind {
	if kind := s.actionKind(); kind != "" {
		return kind
	}
	if strings.HasPrefix(s.code, "2.") {
		return Success
	}
	return Failure
}

// actionKind returns the kind of Action, or "" if it is unknown.
func (s *recipientStatus) actionKind() Kind {
	action := strings.ToLower(s.action)
	switch {
	case strings.HasPrefix(action, "fail"):
		return Failure
	case strings.HasPrefix(action, "delay"):
		return Delay
	case strings.HasPrefix(action, "deliver"), strings.HasPrefix(action, "relay"), strings.HasPrefix(action, "expand"):
		return Success
	}
	return ""
}

// recipient classifies a recipient. words is the report's text for people, used if the status says
// too little; plain is the same text normalized.
func (s *recipientStatus) recipient(words, plain string) Recipient {
	r := Recipient{Address: s.final, Original: s.original, Remote: s.remote, Diagnostic: cleanDiagnostic(s.diagnostic)}
	own := normalize(s.diagnostic)
	r.Code, r.Enhanced = findReply(s.diagnostic)
	if code := findEnhanced(s.code); code != "" && (isGenericCode(r.Enhanced) || code[0] != '5' && r.Enhanced[0] == '5' && r.Code == 0) {
		if r.Enhanced == "" || !isGenericCode(code) {
			r.Enhanced = code
		}
	}
	a := Reply{Stage: cmp.Or(findStage(own), findStage(plain)), Code: r.Code, Enhanced: r.Enhanced, Text: own}
	r.Classification = a.classify()
	if own == "" || r.Subtype == General || r.uncertain {
		section := sectionFor(words, s.final, s.original)
		if r.Code == 0 {
			code, enhanced := findReply(section)
			if isGenericCode(r.Enhanced) && (r.Enhanced == "" || enhanced != "" && enhanced[0] == r.Enhanced[0]) {
				r.Code, r.Enhanced = code, cmp.Or(enhanced, r.Enhanced)
			}
		}
		b := Reply{Stage: cmp.Or(a.Stage, findStage(section)), Code: r.Code, Enhanced: r.Enhanced, Text: own + " " + section}
		if v := b.classify(); v.Subtype != General {
			r.Classification = v
		}
	}
	if r.Diagnostic == "" {
		r.Diagnostic = cleanDiagnostic(sectionFor(words, s.final, s.original))
	}
	return r
}

// parseStatus parses the groups of a delivery status, which may be in any text. Fields may be
// folded, or continue on the next line without folding. The empty lines between groups may be
// missing or repeated.
func parseStatus(text string) []recipientStatus {
	var all []recipientStatus
	var s recipientStatus
	var last *string
	gap := false
	flush := func() {
		if s.isComplete() && len(all) < maxRecipients {
			all = append(all, s)
		}
		s = recipientStatus{}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) == "" {
			gap, last = true, nil
			continue
		}
		if (line[0] == ' ' || line[0] == '\t') && last != nil {
			appendContinuation(last, line)
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || strings.ContainsAny(name, " \t<>@") {
			if last == &s.diagnostic {
				appendContinuation(last, line)
			}
			continue
		}
		field := s.field(name)
		if field == nil {
			last = nil
			continue
		}
		if s.startsGroup(name, gap) {
			flush()
			field = s.field(name)
		}
		gap = false
		if *field == "" || field == &s.diagnostic && len(s.diagnostic) < len(value) {
			*field = strings.TrimSpace(value)
		}
		last = field
	}
	flush()
	for i := range all {
		all[i].clean()
	}
	return all
}

// appendContinuation appends a continuation line to a field.
func appendContinuation(field *string, line string) {
	if len(*field) < maxDiagnostic {
		*field += " " + strings.TrimSpace(line)
	}
}

// startsGroup reports whether a field is the first of a new group.
func (s *recipientStatus) startsGroup(name string, gap bool) bool {
	switch name {
	case "final-recipient":
		return s.final != "" || gap && s.isComplete()
	case "original-recipient":
		return s.original != "" || gap && s.isComplete()
	case "action":
		return s.action != "" && (gap || s.final != "")
	}
	return false
}

func (s *recipientStatus) field(name string) *string {
	switch name {
	case "final-recipient":
		return &s.final
	case "original-recipient", "x-actual-recipient", "original-rcpt":
		if name != "original-recipient" && s.original != "" {
			return nil
		}
		return &s.original
	case "action":
		return &s.action
	case "status":
		return &s.code
	case "diagnostic-code", "x-notes-diagnostic", "x-supplementary-info":
		return &s.diagnostic
	case "remote-mta":
		return &s.remote
	}
	return nil
}

// clean removes the types from the values.
func (s *recipientStatus) clean() {
	s.final, s.original, s.remote = mailboxAddress(s.final), mailboxAddress(s.original), stripType(s.remote)
	s.action = strings.TrimSpace(s.action)
	if kind, rest, ok := strings.Cut(s.diagnostic, ";"); ok && !strings.ContainsAny(strings.TrimSpace(kind), " <>@.") {
		s.diagnostic = strings.TrimSpace(rest)
	}
	s.diagnostic = message.DecodeWords(s.diagnostic[:min(len(s.diagnostic), maxDiagnostic)])
}

// stripType returns the value after the type in fields such as "dns; mx.example".
func stripType(value string) string {
	if _, rest, ok := strings.Cut(value, ";"); ok {
		value = rest
	}
	return strings.TrimSpace(value)
}

// mailboxAddress returns the address in "rfc822; <a@b> (comment)".
func mailboxAddress(value string) string {
	value = stripType(value)
	if a := findAddress(value); a != "" {
		return a
	}
	return strings.Trim(firstWord(value), "<>")
}
