// SPDX-License-Identifier: Apache-2.0

package mailauth

// BreaksDKIM reports whether changing a message's body may break a DKIM signature that was valid
// when host received the message. It uses the host's own Authentication-Results field, which is the
// topmost. Without one, it assumes that every signature was valid.
func BreaksDKIM(header []byte, host string) bool {
	head := indexHeader(header, "dkim-signature", "authentication-results")
	signatures := len(head.fields["dkim-signature"])
	if signatures == 0 && !head.truncated["dkim-signature"] {
		return false
	}
	found, value := ownResults(head, host)
	if value == nil || signatures > maxSignatures || head.truncated["dkim-signature"] {
		return true
	}
	broken := 0
	for _, m := range found.Methods {
		if m.Name != "dkim" {
			continue
		}
		switch m.Result {
		case Fail, PermError, Neutral:
			broken++
		case None:
		default:
			return true
		}
	}
	return broken < signatures
}
