// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"regexp"
	"slices"
	"strings"
)

// The types of a bounce.
const (
	Permanent    = "Permanent"    // this address won't take mail: "hard"
	Transient    = "Transient"    // it may yet, or the next message: "soft"
	Undetermined = "Undetermined" // refused for good, and no word of why
)

// The categories of a bounce: whether the recipient's address is at fault, or
// anything else.
const (
	ByRecipient      = "recipient"
	ByInfrastructure = "infrastructure"
)

// The subtypes of a bounce.
const (
	NoMailbox       = "NoMailbox"
	NoDomain        = "NoDomain"
	BadAddress      = "BadAddress"
	MailboxMoved    = "MailboxMoved"
	NoMail          = "NoMail" // the host or domain takes no mail at all (RFC 7504, RFC 7505)
	MailboxDisabled = "MailboxDisabled"
	MailboxFull     = "MailboxFull"
	MessageTooLarge = "MessageTooLarge"
	ContentRejected = "ContentRejected" // spam, viruses, attachments, broken messages
	Authentication  = "Authentication"  // SPF, DKIM, DMARC, reverse names
	Blocked         = "Blocked"         // who sends is on a list, or of bad repute
	SenderRejected  = "SenderRejected"
	RelayDenied     = "RelayDenied"
	Policy          = "Policy"
	RateLimited     = "RateLimited"
	Refused         = "Refused" // the recipient, or a filter of its own, takes no such mail
	Expired         = "Expired"
	Unreachable     = "Unreachable" // DNS, network, loops, TLS
	SystemTrouble   = "SystemTrouble"
	ProtocolTrouble = "ProtocolTrouble"
	NeedsUTF8       = "NeedsUTF8"
	General         = "General"
)

// Classification is what a bounce means.
type Classification struct {
	Type     string
	Subtype  string
	Category string
	// Suppress: the address itself is at fault, for good, so it is not to be
	// written to again. It is narrower than Permanent, and wider: a disabled
	// mailbox may come back, but until then mail to it harms the sender.
	Suppress bool

	uncertain bool // judged by a code alone that says little
}

// Reply is what a host said when it refused a recipient.
type Reply struct {
	Stage    string // one of the Stage constants, "dns", or "" if unknown
	Code     int    // of SMTP; 0 if none
	Enhanced string // "" if none
	Text     string
}

// Classify judges an answer.
func Classify(a Reply) Classification {
	a.Text = normalize(a.Text)
	return a.classify()
}

// subtypeByCode are the enhanced codes by subject and detail (RFC 3463 §3, and the
// registry of RFC 5248), with what they mean.
var subtypeByCode = map[string]string{
	"1.1": NoMailbox, "1.2": NoDomain, "1.3": BadAddress, "1.4": BadAddress, "1.6": MailboxMoved,
	"1.7": SenderRejected, "1.8": SenderRejected, "1.9": ProtocolTrouble, "1.10": NoMail, // RFC 7505
	"2.1": MailboxDisabled, "2.2": MailboxFull, "2.3": MessageTooLarge, "2.4": SystemTrouble,
	"3.0": SystemTrouble, "3.1": SystemTrouble, "3.2": NoMail, "3.3": SystemTrouble, "3.4": MessageTooLarge, "3.5": SystemTrouble,
	"4.0": Unreachable, "4.1": Unreachable, "4.2": Unreachable, "4.3": Unreachable, "4.4": Unreachable, "4.5": SystemTrouble,
	"4.6": Unreachable, "4.7": Expired,
	"5.1": ProtocolTrouble, "5.2": ProtocolTrouble, "5.3": RateLimited, "5.4": ProtocolTrouble, "5.5": ProtocolTrouble,
	"6.0": ContentRejected, "6.1": ContentRejected, "6.2": ContentRejected, "6.3": ContentRejected, "6.5": ContentRejected, "6.6": ContentRejected,
	"6.7": NeedsUTF8, "6.9": NeedsUTF8, // RFC 6531
	"7.13": MailboxDisabled,                                                // RFC 5248: user account disabled
	"7.20": Authentication, "7.21": Authentication, "7.22": Authentication, // RFC 7372
	"7.23": Authentication, "7.24": Authentication, "7.25": Authentication, "7.26": Authentication,
	"7.27": SenderRejected, // RFC 7505: the sender's domain takes no mail
}

// vagueCodes leave it to the text what is the matter: hosts use them for
// anything.
var vagueCodes = []string{"0.0", "1.0", "2.0", "3.0", "4.0", "5.0", "6.0", "7.0", "7.1"}

// isGenericCode are codes that say nothing at all.
func isGenericCode(enhanced string) bool {
	_, code, _ := strings.Cut(enhanced, ".")
	return code == "" || code == "0.0" || code == "1.0" || code == "2.0"
}

// isPermanentSubtype are the subtypes that mean: never again to this address.
func isPermanentSubtype(subtype string) bool {
	switch subtype {
	case NoMailbox, NoDomain, BadAddress, MailboxMoved, NoMail:
		return true
	}
	return false
}

// classify judges an answer whose text is normal.
func (a *Reply) classify() Classification {
	said := a.match()
	subtype, sure := a.subtype(said)
	if (a.Stage == StageConnect || a.Stage == StageMail) && (isPermanentSubtype(subtype) && subtype != NoMail || subtype == MailboxDisabled) {
		subtype = SenderRejected // no recipient was named yet
	}
	v := Classification{Subtype: subtype, Type: Transient, Category: ByInfrastructure, uncertain: !sure}
	temporary := strings.HasPrefix(a.Enhanced, "4.") || a.Enhanced == "" && a.Code/100 == 4
	switch {
	case temporary && (subtype != NoMailbox || said.weight != weightAlways):
	case isPermanentSubtype(subtype):
		v.Type = Permanent
	case subtype == General, subtype == Refused && said.subtype == NoMailbox:
		v.Type = Undetermined
	}
	_, code, _ := strings.Cut(a.Enhanced, ".")
	unsaid := isGenericCode(a.Enhanced) || code == "5.0" // Outlook.com: of mailboxes that do not exist
	if isPermanentSubtype(subtype) && (suppressCodes[code] || unsaid && subtype != NoMail || a.notInDirectory()) || subtype == MailboxDisabled && (code == "2.1" || isGenericCode(a.Enhanced)) {
		v.Category = ByRecipient
		v.Suppress = !temporary && a.Code/100 != 4 && (said.subtype == NoMailbox || !containsPhrase(a.Text, "temporar"))
	}
	return v
}

// suppressCodes are the codes that speak of the recipient's address and nothing
// else.
var suppressCodes = map[string]bool{"1.1": true, "1.2": true, "1.3": true, "1.6": true, "1.10": true, "2.1": true}

// subtype says what is the matter, and whether that is more than a guess.
func (a *Reply) subtype(said pattern) (subtype string, sure bool) {
	_, code, _ := strings.Cut(a.Enhanced, ".")
	meant := subtypeByCode[code]
	found := said.subtype
	switch {
	case found == "" || said.weight == weightFallback && meant != "":
	case said.weight == weightAlways:
		return found, true
	case a.notInDirectory():
		return NoMailbox, true
	case found == NoMailbox && !isPermanentSubtype(meant) && !slices.Contains([]string{"", StageConnect, StageMail, StageRcpt, "dsn", "dns"}, a.Stage):
		// Who knows the recipient says so at RCPT. After the message this is
		// what some hosts say of mail that they filter.
		return Refused, true
	case found == NoMailbox && strings.HasPrefix(code, "7.") && a.Stage != StageRcpt:
		return Refused, true
	case meant == "" || isVagueCode(code):
		return found, true
	case isPermanentSubtype(meant) && said.weight != weightLow && a.textOverrules(found):
		return found, true
	case code == "2.1":
		return found, true // hosts say it of mailboxes that never were, of limits and of policies
	case (found == NoDomain || found == NoMail || found == Expired) && meant == Unreachable:
		return found, true
	}
	switch {
	case meant != "":
		return meant, !isVagueCode(code)
	case strings.HasPrefix(code, "7."):
		return Policy, !isVagueCode(code)
	}
	switch a.Code {
	case 552:
		return MailboxFull, false
	case 521, 556: // RFC 7504
		return NoMail, false
	case 525: // RFC 5248: user account disabled
		return MailboxDisabled, false
	case 551: // RFC 5321 §3.4
		return MailboxMoved, false
	}
	return General, false
}

// notInDirectory reports whether Exchange Online says at its edge that nobody has
// the address. Postfix says the same words, with 5.7.1, of whatever it is told to
// reject.
func (a *Reply) notInDirectory() bool {
	return strings.HasSuffix(a.Enhanced, ".4.1") && containsPhrase(a.Text, "recipient address rejected: access denied")
}

func isVagueCode(code string) bool { return code == "" || slices.Contains(vagueCodes, code) }

// textOverrules reports whether words of this meaning are believed against a code
// that says that the address is bad: hosts say 5.1.1 of all sorts of things.
func (a *Reply) textOverrules(found string) bool {
	switch found {
	case RelayDenied, Blocked, MailboxFull, MailboxMoved, SenderRejected, NoMail, MailboxDisabled, RateLimited, Refused:
		return true
	case Policy, ContentRejected, Authentication, MessageTooLarge:
		return !slices.ContainsFunc(patterns, func(m pattern) bool { return m.subtype == NoMailbox && m.matches(a.textWithoutNames()) })
	}
	return false
}

// namePattern are mail addresses, and hosts with their address behind them as Postfix
// and Exim tell who answered: "relay@" and "spam.example.org[192.0.2.7]" are no
// words of the host's.
var namePattern = regexp.MustCompile(`[^\s<>()\[\]"',;:@]+@[^\s<>()\[\]"',;:@]+|[a-z0-9_-]+(?:\.[a-z0-9_-]+)+\.? ?\[[0-9a-f:.]+\]`)

// match is what the words mean; the zero meaning if nothing that is known.
func (a *Reply) match() pattern {
	text := a.textWithoutNames()
	for _, m := range patterns {
		if m.matches(text) {
			return m
		}
	}
	return pattern{}
}

// noiseReplacer are what IronPort puts before whatever a host said ("5.1.0 - Unknown
// address error 550-'...'"), and sendmail behind it.
var noiseReplacer = strings.NewReplacer("unknown address error", "", "relay=", "")

// textWithoutNames are the text without names and the like.
func (a *Reply) textWithoutNames() string {
	return noiseReplacer.Replace(namePattern.ReplaceAllLiteralString(a.Text, "@"))
}

// matches reports whether a text says so.
func (m pattern) matches(text string) bool {
	return slices.ContainsFunc(m.phrases, func(phrase string) bool { return containsPhrase(text, phrase) })
}
