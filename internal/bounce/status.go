// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// status is what a delivery status says of one recipient (RFC 3464 §2.3).
type status struct {
	final, original string
	action          string
	status          string
	diagnostic      string
	remote          string
}

// told reports whether there is enough to go by.
func (s *status) told() bool {
	return (s.final != "" || s.original != "" || s.action != "") && (s.action != "" || s.status != "" || s.diagnostic != "")
}

// evident reports whether this can be nothing but a delivery status. What people
// or a help desk write may well have a line "Action: we will call you".
func (s *status) evident() bool {
	return s.final != "" || s.original != "" || s.knownAction() != "" && enhancedIn(s.status) != ""
}

// kind says what becomes of the recipient. Who leaves Action out, or writes
// something else there, is judged by Status.
func (s *status) kind() Kind {
	if kind := s.knownAction(); kind != "" {
		return kind
	}
	if strings.HasPrefix(s.status, "2.") {
		return Success
	}
	return Failure
}

// knownAction is what Action says, "" if nothing that is known.
func (s *status) knownAction() Kind {
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

// recipient judges a recipient; words are what the report says to people, for
// when the status says too little, plain is the same in normal form.
func (s *status) recipient(words, plain string) Recipient {
	r := Recipient{Address: s.final, Original: s.original, Remote: s.remote, Diagnostic: oneLine(s.diagnostic)}
	own := normal(s.diagnostic)
	r.Code, r.Enhanced = replyIn(s.diagnostic)
	if code := enhancedIn(s.status); code != "" && (general(r.Enhanced) || code[0] != '5' && r.Enhanced[0] == '5' && r.Code == 0) {
		if r.Enhanced == "" || !general(code) {
			r.Enhanced = code
		}
	}
	a := Answer{Stage: stageIn(own), Code: r.Code, Enhanced: r.Enhanced, Text: own}
	if a.Stage == "" {
		a.Stage = stageIn(plain)
	}
	r.Verdict = a.judge()
	if own == "" || r.Subtype == General || r.vague {
		section := wordsAbout(words, s.final, s.original)
		if r.Code == 0 {
			code, enhanced := replyIn(section)
			if general(r.Enhanced) && (r.Enhanced == "" || enhanced != "" && enhanced[0] == r.Enhanced[0]) {
				r.Code, r.Enhanced = code, or(enhanced, r.Enhanced)
			}
		}
		b := Answer{Stage: or(a.Stage, stageIn(section)), Code: r.Code, Enhanced: r.Enhanced, Text: own + " " + section}
		if v := b.judge(); v.Subtype != General {
			r.Verdict = v
		}
	}
	if r.Diagnostic == "" {
		r.Diagnostic = oneLine(wordsAbout(words, s.final, s.original))
	}
	return r
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// readStatus reads the groups of a delivery status, which may stand in any
// text: fields may be folded or simply go on in the next line, groups may lack
// the empty line between them or have too many.
func readStatus(text string) []status {
	var all []status
	var s status
	var last *string
	gap := false
	flush := func() {
		if s.told() && len(all) < maxRecipients {
			all = append(all, s)
		}
		s = status{}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) == "" {
			gap, last = true, nil
			continue
		}
		if (line[0] == ' ' || line[0] == '\t') && last != nil {
			goOn(last, line)
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || strings.ContainsAny(name, " \t<>@") {
			if last == &s.diagnostic {
				goOn(last, line)
			}
			continue
		}
		field := s.field(name)
		if field == nil {
			last = nil
			continue
		}
		if s.starts(name, gap) {
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

// goOn adds a further line to a field.
func goOn(field *string, line string) {
	if len(*field) < maxDiagnostic {
		*field += " " + strings.TrimSpace(line)
	}
}

// starts reports whether a field is the first of the next group.
func (s *status) starts(name string, gap bool) bool {
	switch name {
	case "final-recipient":
		return s.final != "" || gap && s.told()
	case "original-recipient":
		return s.original != "" || gap && s.told()
	case "action":
		return s.action != "" && (gap || s.final != "")
	}
	return false
}

func (s *status) field(name string) *string {
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
		return &s.status
	case "diagnostic-code", "x-notes-diagnostic", "x-supplementary-info":
		return &s.diagnostic
	case "remote-mta":
		return &s.remote
	}
	return nil
}

// clean takes the types off the values.
func (s *status) clean() {
	s.final, s.original, s.remote = mailbox(s.final), mailbox(s.original), typed(s.remote)
	s.action = strings.TrimSpace(s.action)
	if kind, rest, ok := strings.Cut(s.diagnostic, ";"); ok && !strings.ContainsAny(strings.TrimSpace(kind), " <>@.") {
		s.diagnostic = strings.TrimSpace(rest)
	}
	s.diagnostic = message.DecodeWords(s.diagnostic[:min(len(s.diagnostic), maxDiagnostic)])
}

// typed returns what follows the type in fields such as "dns; mx.example".
func typed(value string) string {
	if _, rest, ok := strings.Cut(value, ";"); ok {
		value = rest
	}
	return strings.TrimSpace(value)
}

// mailbox is the address in "rfc822; <a@b> (comment)".
func mailbox(value string) string {
	value = typed(value)
	if a := addressIn(value); a != "" {
		return a
	}
	return strings.Trim(firstWord(value), "<>")
}
