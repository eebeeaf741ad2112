// SPDX-License-Identifier: Apache-2.0

package message

import "strings"

const (
	textWidth  = 72
	timeFormat = "Mon, 2 Jan 2006 15:04 MST"
)

// text writes the part for people.
func (r *DSN) text() string {
	var b strings.Builder
	b.WriteString("This is the mail service at " + r.Host + ".\n")
	for _, section := range [...]struct {
		actions string
		one     string
		many    string
		end     string
	}{
		{ActionFailed, "Your message could not be delivered to", "Your message could not be delivered to these recipients", "It will not be tried again."},
		{ActionDelayed, "Your message has not been delivered yet to", "Your message has not been delivered yet to these recipients", "You need not do anything: this is to let you know, and it is being tried further."},
		{ActionDelivered, "As you asked to be told: your message is in the mailbox of", "As you asked to be told: your message is in the mailboxes of", ""},
		{ActionExpanded, "As you asked to be told: your message was sent on to the addresses behind", "As you asked to be told: your message was sent on to the addresses behind these", "No report tells when it reaches them, so this is the last that you hear of it unless something goes wrong."},
		{ActionRelayed, "As you asked to be told: your message was handed on to the server of", "As you asked to be told: your message was handed on to the servers of", "Those servers send no report when it reaches a mailbox, so this is the last that you hear of it unless something goes wrong."},
	} {
		var some []*DSNRecipient
		for i := range r.Recipients {
			if r.Recipients[i].Action == section.actions {
				some = append(some, &r.Recipients[i])
			}
		}
		if len(some) == 0 {
			continue
		}
		title := section.one
		if len(some) > 1 {
			title = section.many
		}
		b.WriteString("\n")
		wrapText(&b, "", title+":")
		for _, one := range some {
			one.appendText(&b)
		}
		if section.end != "" {
			b.WriteString("\n")
			wrapText(&b, "", section.end)
		}
	}
	r.appendSummary(&b)
	return b.String()
}

// appendText appends the text about one recipient: address, reason, advice, and the host's reply.
func (r *DSNRecipient) appendText(b *strings.Builder) {
	b.WriteString("\n  " + cleanLine(r.Recipient) + "\n")
	if _, addr, ok := strings.Cut(r.Original, ";"); ok && !strings.EqualFold(addr, r.Recipient) {
		wrapText(b, "    ", "(which you reached by writing to "+cleanLine(addr)+")")
	}
	if r.isSuccess() {
		return
	}
	reason, advice := r.explain()
	wrapText(b, "    ", reason)
	if advice != "" {
		wrapText(b, "    ", advice)
	}
	if r.Action == ActionDelayed {
		if !r.NextAttempt.IsZero() && r.NextAttempt.Before(r.RetryUntil) {
			wrapText(b, "    ", "The next try is at "+r.NextAttempt.UTC().Format(timeFormat)+".")
		}
		if !r.RetryUntil.IsZero() {
			wrapText(b, "    ", "It is tried until "+r.RetryUntil.UTC().Format(timeFormat)+"; should that not help you will be told.")
		}
	}
	reply := cleanLine(r.Reply)
	switch {
	case reply == "" || reply == reason:
	case r.isLocal() || r.Enhanced == statusExpired:
		wrapText(b, "    ", "In detail: "+reply)
	case r.remoteName() != "":
		wrapText(b, "    ", "The server "+r.remoteName()+" said: "+r.replyLine())
	default:
		wrapText(b, "    ", "The server said: "+r.replyLine())
	}
}

// appendSummary appends which message the report is about.
func (r *DSN) appendSummary(b *strings.Builder) {
	b.WriteString("\nThe message:\n\n")
	for _, line := range [...][2]string{
		{"Subject", cleanLine(r.Original.Header.Decoded("Subject"))},
		{"Handed in", r.ArrivedAt.UTC().Format(timeFormat)},
		{"Message-ID", cleanLine(r.Original.Header.MessageID())},
		{"Your reference", cleanLine(r.EnvID)},
	} {
		if line[1] != "" {
			b.WriteString("  " + line[0] + ": " + line[1] + "\n")
		}
	}
}

// statusReasons map status codes (RFC 3463, RFC 7505), without their class, to a plain explanation
// and advice for the sender.
var statusReasons = map[string][2]string{
	"1.0":  {"There is something wrong with this address.", "Look for a slip in it, or ask the recipient for the right one."},
	"1.1":  {"There is no mailbox with this address.", "Look for a slip in it, or ask the recipient for the right one."},
	"1.2":  {"The part of the address after the @ does not exist in the net.", "Look for a slip in it."},
	"1.3":  {"This is not a valid address for its server.", "Look for a slip in it."},
	"1.6":  {"The recipient has moved and left no new address.", "Ask the recipient for the new one."},
	"1.10": {"The domain of this address takes no mail at all.", "Look for a slip in it."},
	"2.0":  {"There is something wrong with the recipient's mailbox.", "Reach the recipient in another way."},
	"2.1":  {"The recipient's mailbox is closed.", "Reach the recipient in another way."},
	"2.2":  {"The recipient's mailbox is full.", "Send it again later, or reach the recipient in another way."},
	"2.3":  {"The message is too large for the recipient's mailbox.", "Send it without large attachments."},
	"3.2":  {"The recipient's server takes no mail at the moment.", "Send it again later."},
	"3.4":  {"The message is too large for the recipient's server.", "Send it without large attachments."},
	"4.1":  {"The recipient's server could not be reached.", "Send it again later."},
	"4.2":  {"The connection to the recipient's server broke.", "Send it again later."},
	"4.3":  {"It could not be found out which server has this mail.", "Send it again later."},
	"4.4":  {"It could not be found out which server has this mail.", "Send it again later."},
	"4.6":  {"The message went round in circles between servers.", "Tell the recipient: the forwarding of this address is broken."},
	"4.7":  {"It was tried until its time was over.", "Send it again, or reach the recipient in another way."},
	"6.0":  {"The recipient's server refused the message for what is in it.", "Its words below may say why."},
	"6.3":  {"The recipient's server does not take the form in which the message is written.", "Its words below may say why."},
	"6.7":  {"The address needs a server that knows international addresses, and the recipient's does not.", "Ask the recipient for another address."},
	"7.0":  {"The recipient's server refused the message by its rules.", "Its words below may say why."},
	"7.1":  {"The recipient's server takes no such message from you.", "Ask the recipient, or those who run the server, to allow it."},
	"7.30": {"The message demands encryption all the way, which the recipient's server does not offer.", "Send it without that demand."},
}

// localReasons are explanations for deliveries that failed here before the next host replied. They
// don't blame the recipient or the recipient's server.
var localReasons = map[string][2]string{
	"1.7":  {"The sender's address is not valid.", "Look for a slip in it."},
	"3.4":  {"The message is larger than the next mail host on its way takes.", "Send it without large attachments."},
	"6.3":  {"The message has text that the next mail host on its way does not take (8BITMIME), and that can't be encoded without breaking a signature.", "Nothing is wrong with the address: send the message without the signature, or as plain text."},
	"6.7":  {"The message has international addresses, which the next mail host on its way does not take (SMTPUTF8).", "Use addresses in plain letters, where there are any."},
	"7.10": {"The message demands encryption all the way, which the next mail host on its way does not offer.", "Send it without that demand."},
	"7.30": {"The message demands encryption all the way, which the next mail host on its way does not offer.", "Send it without that demand."},
}

// localDeliveryReasons are explanations for deliveries that this service rejected for its own
// mailboxes.
var localDeliveryReasons = map[string][2]string{
	"3.4": {"The message is too large for the recipient's mailbox.", "Send it without large attachments."},
	"6.0": {"This service does not take the message for the recipient.", "The words below say why."},
	"7.0": {"This service does not take the message for the recipient.", "The words below say why."},
	"7.1": {"This service does not take the message for the recipient.", "The words below say why."},
}

// reasonFor returns the explanation and advice for a code, if it is known.
func (r *DSNRecipient) reasonFor(code string) (words [2]string, known bool) {
	if r.isLocal() {
		own := localReasons
		if r.Remote == localRemote {
			own = localDeliveryReasons
		}
		if words, known = own[code]; known {
			return words, true
		}
	}
	words, known = statusReasons[code]
	return words, known
}

// explain returns the reason in plain words, and advice.
func (r *DSNRecipient) explain() (reason, advice string) {
	_, code, _ := strings.Cut(r.Enhanced, ".")
	words, known := r.reasonFor(code)
	if !known {
		subject, _, _ := strings.Cut(code, ".")
		words, known = r.reasonFor(subject + ".0")
	}
	if r.Action == ActionDelayed {
		switch {
		case r.Reply == "" && r.Code == 0:
			return "Its turn has not come yet.", ""
		case known && r.Code != 0 && !strings.HasPrefix(code, "7."):
			return words[0], ""
		case r.Code == 0:
			return "The recipient's server could not be reached.", ""
		}
		return "The recipient's server asked for it to be tried again later.", ""
	}
	switch {
	case known:
		return words[0], words[1]
	case r.Code == 0:
		return "The message could not be sent.", "If the words below do not help, ask those who run this service."
	}
	return "The recipient's server refused the message.", "Its words below may say why."
}

// wrapText writes a text in lines of readable width. It doesn't split words.
func wrapText(b *strings.Builder, indent, text string) {
	col := 0
	for _, word := range strings.Fields(text) {
		switch {
		case col == 0:
			b.WriteString(indent)
			col = len(indent)
		case col+1+len(word) > textWidth:
			b.WriteString("\n" + indent)
			col = len(indent)
		default:
			b.WriteString(" ")
			col++
		}
		b.WriteString(word)
		col += len(word)
	}
	b.WriteString("\n")
}
