// SPDX-License-Identifier: Apache-2.0

package message

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Actions of a report (RFC 3464 §2.3.3).
const (
	ActionFailed    = "failed"
	ActionDelayed   = "delayed"
	ActionDelivered = "delivered"
	ActionRelayed   = "relayed"  // to a host that doesn't send reports
	ActionExpanded  = "expanded" // forwarded to other addresses
)

// DSN is a delivery status notification to the sender of a message (RFC 3464; RFC 6533 for
// addresses that are not ASCII).
type DSN struct {
	Host      string // our own name
	To        Address
	Date      time.Time
	MessageID string // of the report, with angle brackets
	EnvID     string // ENVID of the message, decoded; "" for none
	ArrivedAt time.Time
	// Recipients are the recipients in report order; at least one.
	Recipients []DSNRecipient
	Original   Original
	// SevenBit is set if other hosts relay the report, since not all of them support 8 bits. The
	// report then returns only the header, in encoded words, of a message that is not 7-bit. It
	// writes recipients that are not ASCII in the 7-bit form of RFC 6533 §3.
	SevenBit bool
	// Boundary returns a new boundary; nil: random.
	Boundary func() string
}

// DSNRecipient is the status of one recipient. Its texts are untrusted.
type DSNRecipient struct {
	Recipient   string
	Original    string // ORCPT as "rfc822;a@b", decoded; "" for none
	Action      string
	Code        int    // of the host's reply; 0 if there was none
	Enhanced    string // from the host; replaced unless it is a status code
	Reply       string
	Remote      string // the host that gave the reply; "" for none
	AttemptedAt time.Time
	NextAttempt time.Time // for delayed: next attempt; zero if unknown
	RetryUntil  time.Time // for delayed: last attempt
}

// Original is the message that the report is about.
type Original struct {
	Header Header
	// Open opens the whole message to return it; nil: only its header is returned.
	Open     func() (io.ReadCloser, error)
	UTF8     bool // whether its header has bytes above 127
	EightBit bool // whether its body has, or, with SevenBit, anything else that is not 7-bit: NUL, lines over 998 octets
}

// maxReportText is the length, in octets, up to which a report repeats a host's text.
const maxReportText = 900

// Write writes the report: a text for people, a status for programs, and the message or its header.
// Errors are those of w and of Original.Open.
func (r *DSN) Write(w io.Writer) error {
	if r.SevenBit && (r.Original.UTF8 || r.Original.EightBit || hasLongLine(r.Original.Header)) {
		plain := *r
		plain.Original = Original{Header: r.Original.Header.toASCII()}
		r = &plain
	}
	c := composer{w: w, d: &Draft{}, boundary: r.Boundary}
	if c.boundary == nil {
		c.boundary = func() string { return "=_" + rand.Text() }
	}
	var h fieldWriter
	r.appendHeader(&h)
	c.write(h.dst)
	parts := []func(){
		func() { c.text("plain", r.text()) },
		func() { r.writeStatus(&c) },
	}
	if r.Original.Open != nil || len(r.Original.Header) > 0 {
		parts = append(parts, func() { r.writeOriginal(&c) })
	}
	c.multipart("report", "; report-type=delivery-status", parts)
	return c.err
}

func (r *DSN) appendHeader(w *fieldWriter) {
	field := func(name, value string) {
		w.begin(name)
		w.put(value)
		w.end()
	}
	field("Date", r.Date.Format(DateFormat))
	w.begin("From")
	w.addresses([]Address{{Name: "Mail Delivery System", Local: "MAILER-DAEMON", Domain: r.Host}})
	w.end()
	w.begin("To")
	w.addresses([]Address{r.To})
	w.end()
	w.begin("Subject")
	w.unstructured(truncate(r.subject(), maxReportText))
	w.end()
	field("Message-ID", r.MessageID)
	if id := r.Original.Header.MessageID(); IsUsableMessageID(id) {
		field("In-Reply-To", id)
		w.begin("References")
		for _, old := range lastN(r.Original.Header.References(), maxOwnReferences-1) {
			if IsUsableMessageID(old) && old != id {
				w.put(old)
			}
		}
		w.put(id)
		w.end()
	}
	field("Auto-Submitted", "auto-replied")
	field("MIME-Version", "1.0")
	if r.isEightBit() {
		field("Content-Transfer-Encoding", "8bit")
	}
}

// IsUsableMessageID reports whether someone else's Message-ID may be in a header that we write.
func IsUsableMessageID(id string) bool {
	return isValidMessageID(id) && isASCII(id) && len(id) < foldColumn*4
}

func lastN(list []string, n int) []string { return list[max(0, len(list)-n):] }

func (r *DSN) subject() string {
	words := []string{"Delivered", "Relayed", "Relayed", "Delayed", "Undelivered"}
	worst := 0
	for i := range r.Recipients {
		worst = max(worst, slices.Index([]string{ActionDelivered, ActionExpanded, ActionRelayed, ActionDelayed, ActionFailed}, r.Recipients[i].Action))
	}
	word := words[worst]
	if s := strings.TrimSpace(r.Original.Header.Decoded("Subject")); s != "" {
		return word + ": " + s
	}
	return word + " mail"
}

// needsUTF8Form reports whether an address is not ASCII, so that the status needs the 8-bit form of
// RFC 6533 §4.
func (r *DSN) needsUTF8Form() bool {
	if r.SevenBit {
		return false
	}
	for i := range r.Recipients {
		if !isASCII(r.Recipients[i].Recipient) || !isASCII(r.Recipients[i].Original) {
			return true
		}
	}
	return false
}

func (r *DSN) isEightBit() bool {
	return r.needsUTF8Form() || r.Original.UTF8 || r.Original.EightBit && r.Original.Open != nil
}

// writeStatus writes the status part.
func (r *DSN) writeStatus(c *composer) {
	kind, encoding := "delivery-status", ""
	if r.needsUTF8Form() {
		kind, encoding = "global-delivery-status", "Content-Transfer-Encoding: 8bit\r\n"
	}
	var w fieldWriter
	w.dst = append(w.dst, "Content-Type: message/"+kind+"\r\n"+encoding+"\r\n"...)
	field := func(name, value string) {
		if value = cleanLine(value); value == "" {
			return
		}
		if !r.needsUTF8Form() {
			value = asciiOnly(value)
		}
		w.begin(name)
		for _, word := range strings.Fields(value) {
			w.put(word)
		}
		w.end()
	}
	date := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Format(DateFormat)
	}
	field("Original-Envelope-Id", r.EnvID)
	field("Reporting-MTA", "dns; "+r.Host)
	field("Arrival-Date", date(r.ArrivedAt))
	for i := range r.Recipients {
		one := &r.Recipients[i]
		w.dst = append(w.dst, "\r\n"...)
		field("Original-Recipient", r.originalRecipient(one.Original))
		field("Final-Recipient", r.finalRecipient(one.Recipient))
		field("Action", one.Action)
		field("Status", one.status())
		if one.remoteName() != "" {
			field("Remote-MTA", "dns; "+mtaName(one.remoteName()))
		}
		field("Diagnostic-Code", one.diagnostic())
		if one.Action != ActionDelayed {
			field("Last-Attempt-Date", date(one.AttemptedAt))
		} else {
			field("Will-Retry-Until", date(one.RetryUntil))
		}
	}
	c.write(w.dst)
}

func (r *DSN) originalRecipient(orcpt string) string {
	kind, addr, ok := strings.Cut(orcpt, ";")
	if !ok {
		return ""
	}
	return cleanClause(kind) + "; " + r.xtextAddress(addr)
}

func (r *DSN) finalRecipient(addr string) string {
	if isASCII(addr) {
		return "rfc822; " + addr
	}
	return "utf-8; " + r.xtextAddress(addr)
}

// xtextAddress returns the 7-bit form of an address that is not ASCII (utf-8-addr-xtext, RFC 6533
// §3).
func (r *DSN) xtextAddress(addr string) string {
	if !r.SevenBit || isASCII(addr) {
		return addr
	}
	var b strings.Builder
	for _, c := range strings.ToValidUTF8(addr, "\uFFFD") {
		if c < '!' || c > '~' || c == '+' || c == '=' || c == '\\' {
			fmt.Fprintf(&b, `\x{%02X}`, c)
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

// status returns the Status field: the host's code, if it is valid.
func (r *DSNRecipient) status() string {
	class, rest, _ := strings.Cut(r.Enhanced, ".")
	subject, detail, ok := strings.Cut(rest, ".")
	if ok && isNumber(subject) && isNumber(detail) {
		switch {
		case r.Action == ActionFailed && (class == "4" || class == "5"),
			r.Action == ActionDelayed && class == "4",
			r.isSuccess() && class == "2":
			return r.Enhanced
		}
	}
	switch {
	case r.Action == ActionFailed:
		return "5.0.0"
	case r.Action == ActionDelayed:
		return "4.0.0"
	}
	return "2.0.0"
}

func (r *DSNRecipient) isSuccess() bool {
	return r.Action == ActionDelivered || r.Action == ActionRelayed || r.Action == ActionExpanded
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil && len(s) <= 3
}

// localRemote is the Remote of deliveries to this service's own mailboxes.
const localRemote = "local"

// isLocal reports whether this host decided the status, without another host's reply.
func (r *DSNRecipient) isLocal() bool { return r.Code == 0 || r.Remote == localRemote }

// remoteName returns the name of another host that gave the reply, or "".
func (r *DSNRecipient) remoteName() string {
	if r.isLocal() || !strings.Contains(r.Remote, ".") {
		return "" // "sandbox" and the like are internal names
	}
	return cleanClause(cleanLine(r.Remote))
}

// mtaName returns the name of a host, with an address in brackets (RFC 5321 §4.1.3).
func mtaName(host string) string {
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return host
	case addr.Is4():
		return "[" + host + "]"
	}
	return "[IPv6:" + host + "]"
}

// statusExpired is the status of a delivery that expired.
const statusExpired = "4.4.7"

func (r *DSNRecipient) diagnostic() string {
	reply := cleanLine(r.Reply)
	switch {
	case reply == "" && r.Code == 0:
		return ""
	case r.Code == 0 || r.Enhanced == statusExpired:
		return "X-Mailstead; " + reply
	case r.isLocal():
		return "X-Mailstead; " + r.replyLine()
	}
	return "smtp; " + r.replyLine()
}

// replyLine returns the host's reply as it was given.
func (r *DSNRecipient) replyLine() string {
	reply := cleanLine(r.Reply)
	if r.Enhanced != "" && !strings.HasPrefix(reply, r.Enhanced) {
		reply = cleanLine(r.Enhanced) + " " + reply
	}
	return strconv.Itoa(r.Code) + " " + strings.TrimSpace(reply)
}

// writeOriginal writes the message, or its header.
func (r *DSN) writeOriginal(c *composer) {
	o := &r.Original
	kind, encoding := "text/rfc822-headers", "7bit"
	global := o.UTF8 && utf8.Valid(o.Header) // RFC 6533 requires UTF-8
	switch {
	case o.Open != nil && global:
		kind = "message/global"
	case o.Open != nil:
		kind = "message/rfc822"
	case global:
		kind = "message/global-headers"
	}
	if o.UTF8 || o.EightBit && o.Open != nil {
		encoding = "8bit"
	}
	c.print("Content-Type: ", kind, "\r\nContent-Transfer-Encoding: ", encoding, "\r\n\r\n")
	if o.Open == nil {
		c.write(o.Header)
		return
	}
	if c.err != nil {
		return
	}
	in, err := o.Open()
	if err != nil {
		c.fail(fmt.Errorf("opening the message that is reported on: %w", err))
		return
	}
	_, err = io.Copy(c, in)
	c.fail(err)
	c.fail(in.Close())
}

// cleanLine returns an untrusted text as one line of printable characters.
func cleanLine(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return truncate(strings.TrimSpace(s), maxReportText)
}

// truncate truncates a text to at most n bytes of whole characters.
func truncate(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}

func asciiOnly(s string) string {
	return strings.Map(func(r rune) rune {
		if r > '~' {
			return '?'
		}
		return r
	}, s)
}
