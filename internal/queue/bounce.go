// SPDX-License-Identifier: Apache-2.0

package queue

import "strings"

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

// bounceOf says what kind of bounce a final failure is. A host may say 5.1.1
// of mail that it refuses for its content, but not before it has seen it: only
// at RCPT is a text without a code believed.
func bounceOf(stage string, expired bool, s statusData) *bounce {
	b := &bounce{Type: "Permanent", Subtype: "General", Category: aboutInfrastructure}
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
	case code == "" && stage == "rcpt" && s.Code/10 == 55 && contains(strings.ToLower(s.Reply), saysNoMailbox):
		b.Subtype, b.Category = "NoMailbox", aboutRecipient
	case s.Code == 552:
		b.Subtype = "MailboxFull"
	}
	return b
}

func contains(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}
