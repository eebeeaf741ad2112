// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"strings"
)

// The categories of a bounce: whether the recipient's address is at fault, or
// anything else.
const (
	aboutRecipient      = "recipient"
	aboutInfrastructure = "infrastructure"
)

// recipientTrouble are the enhanced codes (RFC 3463, RFC 7505) that speak of
// the recipient's address and nothing else, with what they mean.
var recipientTrouble = map[string]string{
	"1.1": "NoMailbox", "1.2": "NoDomain", "1.3": "BadAddress", "1.6": "MailboxMoved", "1.10": "NoDomain",
	"2.1": "MailboxDisabled",
}

// otherTrouble are further codes of which the meaning is sure.
var otherTrouble = map[string]string{
	"2.2": "MailboxFull", "2.3": "MessageTooLarge", "3.4": "MessageTooLarge",
	"4.7": "Expired", "6.0": "ContentRejected", "6.3": "ContentRejected", "6.7": "NeedsUTF8",
}

// saysNoMailbox are words by which hosts without enhanced codes say that
// there is no such mailbox.
var saysNoMailbox = []string{
	"user unknown", "unknown user", "no such user", "no such recipient", "no such mailbox", "mailbox not found",
	"mailbox unavailable", "recipient not found", "address does not exist", "account does not exist",
	"does not exist", "invalid recipient", "unknown recipient", "recipient unknown", "mailbox does not exist",
}

// saysOther are words of a text that names the recipient's mailbox, and yet
// refuses for another reason: who sends, what, or how much.
var saysOther = []string{
	"sender", "blocked", "block list", "blocklist", "blacklist", "black list", "reputation", "policy", "spam", "spf ", "dkim", "dmarc",
	"relay", "quota", "is full", "mailbox full", "too many", "rate limit", "try again", "temporar", "from address", "return path", "mail from",
}

// general are codes that leave it to the text what is the matter.
func general(code string) bool { return code == "" || code == "0.0" || code == "1.0" || code == "2.0" }

// bounceOf says what kind of bounce a final failure is. A host may say so much
// of mail that it refuses for its content, but not before it has seen it: only
// at RCPT, and in a DSN, is a text without a clear code believed.
func bounceOf(stage string, expired bool, s statusData) *BounceKind {
	b := &BounceKind{Type: "Permanent", Subtype: "General", Category: aboutInfrastructure}
	if expired {
		b.Type, b.Subtype = "Transient", "Expired"
		return b
	}
	_, code, _ := strings.Cut(s.Enhanced, ".")
	switch {
	case recipientTrouble[code] != "":
		b.Subtype, b.Category = recipientTrouble[code], aboutRecipient
	case otherTrouble[code] != "":
		b.Subtype = otherTrouble[code]
	case strings.HasPrefix(code, "7."):
		b.Subtype = "Policy"
	case general(code) && (stage == "rcpt" || stage == "dsn") && s.Code/10 == 55 && namesRecipient(strings.ToLower(s.Reply)):
		b.Subtype, b.Category = "NoMailbox", aboutRecipient
	case s.Code == 552:
		b.Subtype = "MailboxFull"
	}
	return b
}

func namesRecipient(text string) bool {
	return contains(text, saysNoMailbox) && !contains(text, saysOther)
}

// suppresses reports whether a bounce is recipient trouble for good.
func (b *BounceKind) suppresses(s *statusData) bool {
	return b.Type == "Permanent" && b.Category == aboutRecipient && !strings.HasPrefix(s.Enhanced, "4.")
}

// diagnostic is the last answer in one line.
func (s *statusData) diagnostic() string {
	code := ""
	if s.Code != 0 {
		code = fmt.Sprint(s.Code)
	}
	return strings.Join(strings.Fields(code+" "+s.Enhanced+" "+s.Reply), " ")
}

func contains(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}
