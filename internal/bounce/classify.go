// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Types of bounces.
const (
	Permanent    = "Permanent"    // the address can't receive mail: "hard"
	Transient    = "Transient"    // a later attempt or another message may succeed: "soft"
	Undetermined = "Undetermined" // a permanent failure without a known reason
)

// Categories of bounces: whether the recipient's address is the cause, or something else.
const (
	ByRecipient      = "recipient"
	ByInfrastructure = "infrastructure"
)

// Subtypes of bounces.
const (
	NoMailbox       = "NoMailbox"
	NoDomain        = "NoDomain"
	BadAddress      = "BadAddress"
	MailboxMoved    = "MailboxMoved"
	NoMail          = "NoMail" // the host or domain accepts no mail at all (RFC 7504, RFC 7505)
	MailboxDisabled = "MailboxDisabled"
	MailboxFull     = "MailboxFull"
	MessageTooLarge = "MessageTooLarge"
	ContentRejected = "ContentRejected" // spam, viruses, attachments, broken messages
	Authentication  = "Authentication"  // SPF, DKIM, DMARC, reverse DNS
	Blocked         = "Blocked"         // the sending host is on a block list or has a bad reputation
	SenderRejected  = "SenderRejected"
	RelayDenied     = "RelayDenied"
	Policy          = "Policy"
	RateLimited     = "RateLimited"
	Refused         = "Refused" // the recipient, or the recipient's own filter, rejects the message
	Expired         = "Expired"
	Unreachable     = "Unreachable" // DNS, network, loops, TLS
	SystemTrouble   = "SystemTrouble"
	ProtocolTrouble = "ProtocolTrouble"
	NeedsUTF8       = "NeedsUTF8"
	General         = "General"
)

// Classification is the meaning of a bounce.
type Classification struct {
	Type     string
	Subtype  string
	Category string
	// Suppress reports whether to send no more mail to the address, because the address itself is
	// the permanent cause. That is both narrower and wider than Permanent: a disabled mailbox may
	// be enabled again, but until then mail to it harms the sender's reputation.
	Suppress bool

	uncertain bool // whether it is based only on a vague code
}

// Reply is a host's reply that rejected a recipient.
type Reply struct {
	Stage    string // one of the Stage constants, "dns", or "" if unknown
	Code     int    // SMTP code; 0 if none
	Enhanced string // "" if none
	Text     string
}

// Classify classifies a reply.
func Classify(a Reply) Classification {
	a.Text = normalize(a.Text)
	return a.classify()
}

// subtypeByCode maps enhanced status codes, as subject and detail, to subtypes (RFC 3463 §3, and
// the registry of RFC 5248).
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
	"7.27": SenderRejected, // RFC 7505: the sender's domain accepts no mail
}

// subtypeByReply maps SMTP codes to subtypes, where a reply says nothing else.
var subtypeByReply = map[int]string{
	521: NoMail, 556: NoMail, // RFC 7504
	525: MailboxDisabled, // RFC 5248: user account disabled
	551: MailboxMoved,    // RFC 5321 §3.4
	552: MailboxFull,
}

// vagueCodes are codes that hosts use for anything, so that the text decides.
var vagueCodes = []string{"0.0", "1.0", "2.0", "3.0", "4.0", "5.0", "6.0", "7.0", "7.1"}

// isGenericCode reports whether a code says nothing at all.
func isGenericCode(enhanced string) bool {
	_, code, _ := strings.Cut(enhanced, ".")
	return code == "" || code == "0.0" || code == "1.0" || code == "2.0"
}

// isPermanentSubtype reports whether a subtype means that the address will never accept mail.
func isPermanentSubtype(subtype string) bool {
	return slices.Contains([]string{NoMailbox, NoDomain, BadAddress, MailboxMoved, NoMail}, subtype)
}

// classify classifies a reply whose text is normalized.
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
	unsaid := isGenericCode(a.Enhanced) || code == "5.0" // Outlook.com uses 5.5.0 for mailboxes that don't exist
	if isPermanentSubtype(subtype) && (suppressCodes[code] || unsaid && subtype != NoMail || a.notInDirectory()) || subtype == MailboxDisabled && (code == "2.1" || isGenericCode(a.Enhanced)) {
		v.Category = ByRecipient
		v.Suppress = !temporary && a.Code/100 != 4 && (said.subtype == NoMailbox || !containsPhrase(a.Text, "temporar"))
	}
	return v
}

// suppressCodes are the codes that are only about the recipient's address.
var suppressCodes = map[string]bool{"1.1": true, "1.2": true, "1.3": true, "1.6": true, "1.10": true, "2.1": true}

// subtype returns the reason of the reply, and whether it is more than a guess.
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
		// A host that knows its recipients rejects unknown ones at RCPT. After the message, some
		// hosts use these words for mail that they filter.
		return Refused, true
	case found == NoMailbox && strings.HasPrefix(code, "7.") && a.Stage != StageRcpt:
		return Refused, true
	case meant == "" || isVagueCode(code):
		return found, true
	case isPermanentSubtype(meant) && said.weight != weightLow && a.textOverrules(found):
		return found, true
	case code == "2.1":
		return found, true // hosts use 2.1 for mailboxes that never existed, and for limits and policies
	case (found == NoDomain || found == NoMail || found == Expired) && meant == Unreachable:
		return found, true
	}
	switch {
	case meant != "":
		return meant, !isVagueCode(code)
	case strings.HasPrefix(code, "7."):
		return Policy, !isVagueCode(code)
	}
	return cmp.Or(subtypeByReply[a.Code], General), false
}

// notInDirectory reports whether Exchange Online's edge says that the address doesn't exist.
// Postfix uses the same words, with 5.7.1, for anything that it is configured to reject.
func (a *Reply) notInDirectory() bool {
	return strings.HasSuffix(a.Enhanced, ".4.1") && containsPhrase(a.Text, "recipient address rejected: access denied")
}

func isVagueCode(code string) bool { return code == "" || slices.Contains(vagueCodes, code) }

// textOverrules reports whether a text with this meaning overrides a code for a bad address: hosts
// use 5.1.1 for many things.
func (a *Reply) textOverrules(found string) bool {
	switch found {
	case RelayDenied, Blocked, MailboxFull, MailboxMoved, SenderRejected, NoMail, MailboxDisabled, RateLimited, Refused:
		return true
	case Policy, ContentRejected, Authentication, MessageTooLarge:
		return !slices.ContainsFunc(patterns, func(m pattern) bool { return m.subtype == NoMailbox && m.matches(a.textWithoutNames()) })
	}
	return false
}

// namePattern matches mail addresses, and host names with an IP address as Postfix and Exim write
// them. Their words, as in "relay@" and "spam.example.org[192.0.2.7]", are not part of the host's
// reply.
var namePattern = regexp.MustCompile(`[^\s<>()\[\]"',;:@]+@[^\s<>()\[\]"',;:@]+|[a-z0-9_-]+(?:\.[a-z0-9_-]+)+\.? ?\[[0-9a-f:.]+\]`)

// match returns the first pattern that matches, or the zero pattern.
func (a *Reply) match() pattern {
	text := a.textWithoutNames()
	for _, m := range patterns {
		if m.matches(text) {
			return m
		}
	}
	return pattern{}
}

// noiseReplacer removes the words that IronPort puts before a host's reply ("5.1.0 - Unknown
// address error 550-'...'"), and sendmail after it.
var noiseReplacer = strings.NewReplacer("unknown address error", "", "relay=", "")

// textWithoutNames returns the text without names and noise.
func (a *Reply) textWithoutNames() string {
	return noiseReplacer.Replace(namePattern.ReplaceAllLiteralString(a.Text, "@"))
}

// matches reports whether a text contains one of the phrases.
func (m pattern) matches(text string) bool {
	return containsAny(text, m.phrases)
}
