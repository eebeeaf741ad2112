// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/summary"
)

// errSandboxOnly is the response outside the sandbox.
var errSandboxOnly = fault.New(fault.NotFound, "sandbox_only", "This endpoint is there in the sandbox alone, which mailstead dev starts.")

// simulateRequest is a simulated incoming message: raw, or composed from fields.
type simulateRequest struct {
	MailFrom *string    `json:"mail_from,omitempty" doc:"The envelope's sender; empty for the null sender, of reports and automatic replies. When left out it is the author." example:"bounces@example.org"`
	RcptTo   []string   `json:"rcpt_to,omitempty" doc:"The envelope's recipients, at most 50. When left out they are those of to and cc, or of the raw message's To and Cc." example:"you@example.com"`
	Raw      *fileIndex `json:"raw,omitempty" doc:"The whole message in base64, as it would come by SMTP; at most 25 MB. If the first line ends in a line feed alone, all line feeds are taken as line ends. The fields below are not given then."`

	From        string              `json:"from,omitempty" doc:"The author: a@b.example or Name <a@b.example>. Required without raw." example:"Bob <bob@example.org>"`
	To          []string            `json:"to,omitempty" doc:"The recipients in the header." example:"you@example.com"`
	Cc          []string            `json:"cc,omitempty" doc:"Further recipients in the header." example:"carol@example.com"`
	ReplyTo     string              `json:"reply_to,omitempty" doc:"Where answers go." example:"bob@example.org"`
	Subject     string              `json:"subject,omitempty" doc:"The subject line." example:"Re: Your order"`
	Text        string              `json:"text,omitempty" doc:"The plain text." example:"Thank you!"`
	HTML        string              `json:"html,omitempty" doc:"The HTML." example:"<p>Thank you!</p>"`
	MessageID   string              `json:"message_id,omitempty" doc:"The Message-ID; one is made when left out." example:"<abc@example.org>"`
	InReplyTo   string              `json:"in_reply_to,omitempty" doc:"The Message-ID of the message that this answers." example:"<abc@example.com>"`
	Headers     map[string]string   `json:"headers,omitempty" doc:"Further header fields; whatever this request and the service don't set by themselves." example:"{\"List-Id\":\"<news.example.org>\"}"`
	Attachments []attachmentRequest `json:"attachments,omitempty" maxItems:"10" doc:"At most 10, and 25 MB (26,214,400 bytes) together when decoded."`

	CheckResults *checkResultsRequest `json:"check_results,omitempty" doc:"What the message is found to be. Spam is filed in Junk."`
}

// adjustSchema adds an example of a composed message.
func (simulateRequest) adjustSchema(s *schema) {
	s.Examples = []any{map[string]any{"from": "Bob <bob@example.org>", "to": []string{"ann@example.com"}, "subject": "Re: Your order", "text": "Thank you!"}}
}

type checkResultsRequest struct {
	SPF   string `json:"spf,omitempty" enum:"none,neutral,pass,fail,softfail,temperror,permerror" doc:"none when left out." example:"pass"`
	DKIM  string `json:"dkim,omitempty" enum:"none,neutral,pass,fail,policy,temperror,permerror" doc:"none when left out." example:"pass"`
	DMARC string `json:"dmarc,omitempty" enum:"none,pass,fail,temperror,permerror" doc:"none when left out." example:"fail"`
	Spam  string `json:"spam,omitempty" enum:"none,ham,spam" doc:"none when left out." example:"ham"`

	SpamScore   float64 `json:"spam_score,omitempty" minimum:"-10000" maximum:"10000" doc:"The filter's points; 0 when left out." example:"1.5"`
	SpamReasons string  `json:"spam_reasons,omitempty" maxLength:"1000" doc:"What the filter counted, parted by spaces." example:"DNSBL=3 BAYES_HAM=-1.5"`
}

type simulateInput struct{ Body simulateRequest }

type simulationResponse struct {
	Accepted     bool                 `json:"accepted" doc:"Whether the message was accepted for any recipient."`
	SMTPCode     int                  `json:"smtp_code" doc:"What SMTP would have answered to the message." example:"250"`
	EnhancedCode string               `json:"enhanced_code" doc:"Likewise (RFC 3463)." example:"2.0.0"`
	Diagnostic   string               `json:"diagnostic" doc:"Likewise, in words." example:"Accepted as 0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21"`
	Recipients   []simulatedRecipient `json:"recipients" doc:"What SMTP would have answered to each recipient."`
}

type simulatedRecipient struct {
	Email        string `json:"email" doc:"The recipient." example:"you@example.com"`
	SMTPCode     int    `json:"smtp_code" doc:"The reply's code." example:"250"`
	EnhancedCode string `json:"enhanced_code" doc:"Likewise (RFC 3463)." example:"2.1.5"`
	Diagnostic   string `json:"diagnostic" doc:"The reply in words." example:"Recipient OK"`
	MailboxID    *db.ID `json:"mailbox_id" doc:"The mailbox in which the message was filed; null for none, as of a report to a return path."`
	ID           *db.ID `json:"id" doc:"The id of the message there."`
}

func (a *API) sandboxRoutes(r *router) {
	o := operation{method: "POST", path: "/sandbox/inbound", id: "simulateInbound", scope: "sandbox.write", hasBody: true, maxBodyBytes: sendBodyLimits().maxBytes,
		summary: "Receive an email as from outside", description: "In the sandbox of `mailstead dev` alone. The message takes the way of all mail that comes by SMTP: recipients are looked up, " +
			"quotas judged, reports to return paths read, threads found, events recorded. The status is 200 also when it is refused; the answer says what an SMTP client would have been told. " +
			"Only mailboxes of your own account are reached."}
	describeOperation[simulateInput, simulationResponse](r.doc, o)
	r.register(o, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		out, err := a.simulateInbound(w, req, p)
		if err != nil {
			return err
		}
		return o.respond(w, out)
	})
	a.capturedRoutes(r)
}

// simulationBodyLimits returns the limits of a simulated message, whose files don't count towards
// maxRest.
func simulationBodyLimits() bodyLimits {
	b := sendBodyLimits()
	b.contentField = "raw"
	return b
}

func (a *API) simulateInbound(w http.ResponseWriter, r *http.Request, p account.Principal) (simulationResponse, error) {
	if a.SandboxOutbox == nil {
		return simulationResponse{}, errSandboxOnly
	}
	if err := rejectQuery(r); err != nil {
		return simulationResponse{}, err
	}
	post := &sendOperation{api: a, bodyLimits: simulationBodyLimits(), principal: p}
	defer post.close()
	var in simulateRequest
	bad, err := post.readBody(w, r, &in)
	if err != nil {
		post.reservation.release()
		discardBody(r, post.maxBytes)
		return simulationResponse{}, err
	}
	s := &inboundSimulation{in: &in, files: &post.spool, faults: append(bad, keyedRequestFrom(r.Context()).headerFaults()...)}
	body, err := s.openMessage(a.Inbound.Host, time.Now())
	if err != nil {
		return simulationResponse{}, err
	}
	defer body.Close() //nolint:errcheck // only read
	s.Body, s.Received = body, message.ReceivedField{Helo: "sandbox", By: a.Inbound.Host, With: "HTTP"}
	s.Allow = func(to mailbox.Recipient) bool {
		return to.Account == p.Account && (p.Domain == "" || strings.HasSuffix(to.Address, "@"+p.Domain))
	}
	out, err := a.Inbound.Simulate(r.Context(), s.SimulatedMessage)
	return convertResult(out, err, newSimulationResponse)
}

func newSimulationResponse(out inbound.SimulationResult) simulationResponse {
	answer := simulationResponse{
		Accepted: out.Code == 250, SMTPCode: out.Code, EnhancedCode: out.Enhanced, Diagnostic: out.Text, Recipients: []simulatedRecipient{},
	}
	for _, r := range out.Recipients {
		one := simulatedRecipient{Email: r.To, SMTPCode: r.Code, EnhancedCode: r.Enhanced, Diagnostic: r.Text}
		if r.Mailbox != 0 {
			one.MailboxID, one.ID = &r.Mailbox, &r.Message
		}
		answer.Recipients = append(answer.Recipients, one)
	}
	return answer
}

// inboundSimulation is a simulation request that is being decoded.
type inboundSimulation struct {
	inbound.SimulatedMessage
	in     *simulateRequest
	files  *spool
	faults fault.FieldErrors
}

// openMessage validates the request, reports all faults at once, and returns the message.
func (s *inboundSimulation) openMessage(host string, now time.Time) (io.ReadCloser, error) {
	if v := s.in.CheckResults; v != nil {
		s.CheckResults = summary.CheckResults{SPF: v.SPF, DKIM: v.DKIM, DMARC: v.DMARC, Spam: v.Spam, SpamScore: apijson.NullFloat(v.SpamScore), SpamReasons: apijson.NullString(v.SpamReasons)}
	}
	if s.in.Raw != nil {
		return s.openRaw()
	}
	return s.compose(host, now)
}

// setEnvelope sets the sender and the recipients, by default from the header.
func (s *inboundSimulation) setEnvelope(from *address.Address, to []address.Address) {
	s.From = from
	if given := s.in.MailFrom; given != nil {
		s.From = nil
		if *given != "" {
			a, err := address.Parse(*given)
			if err != nil {
				s.faults.Add("mail_from", "invalid_address", "This must be a bare address such as you@example.com, or empty.")
			}
			s.From = &a
		}
	}
	if s.in.RcptTo != nil {
		to = nil
	}
	for i, text := range s.in.RcptTo[:min(len(s.in.RcptTo), outbound.MaxRecipients)] {
		a, err := address.Parse(text)
		if err != nil {
			s.faults.Add(fmt.Sprintf("rcpt_to[%d]", i), "invalid_address", "This must be a bare address such as you@example.com.")
			continue
		}
		to = append(to, a)
	}
	switch {
	case len(s.in.RcptTo) > outbound.MaxRecipients || len(to) > outbound.MaxRecipients:
		s.faults.Add("rcpt_to", "too_many_recipients", "A message can have %d recipients.", outbound.MaxRecipients)
	case len(to) == 0 && !slices.ContainsFunc(s.faults, isRecipientFault):
		s.faults.Add("rcpt_to", "required", "Give at least one recipient, here or in the header.")
	}
	seen := map[string]bool{}
	s.To = slices.DeleteFunc(to, func(a address.Address) bool {
		twice := seen[a.String()]
		seen[a.String()] = true
		return twice
	})
}

// isRecipientFault reports whether a fault concerns a recipient field.
func isRecipientFault(f fault.FieldError) bool {
	name, _, _ := strings.Cut(f.Path, "[")
	return slices.Contains([]string{"rcpt_to", "to", "cc", "raw"}, name)
}

// openRaw returns the raw message unchanged.
func (s *inboundSimulation) openRaw() (io.ReadCloser, error) {
	in := s.in
	for name, given := range map[string]bool{
		"from": in.From != "", "to": in.To != nil, "cc": in.Cc != nil, "reply_to": in.ReplyTo != "", "subject": in.Subject != "", "text": in.Text != "",
		"html": in.HTML != "", "message_id": in.MessageID != "", "in_reply_to": in.InReplyTo != "", "headers": in.Headers != nil, "attachments": in.Attachments != nil,
	} {
		if given {
			s.faults.Add(name, "not_with_raw", "A raw message has all of that already.")
		}
	}
	slices.SortFunc(s.faults, func(a, b fault.FieldError) int { return strings.Compare(a.Path, b.Path) })
	n := int(*in.Raw)
	if n < 0 || n >= len(s.files.files) {
		return nil, s.faults.Err() // the faults have the reason
	}
	if s.Size = s.files.files[n].size; s.Size > outbound.MaxAttachmentBytes {
		s.faults.Add("raw", "too_large", "The message may have 25 MB (%d bytes) when decoded.", outbound.MaxAttachmentBytes)
		return nil, s.faults.Err()
	}
	body, err := s.files.files[n].open()
	if err != nil {
		return nil, err
	}
	read := bufio.NewReaderSize(body, 64<<10)
	first, _ := read.Peek(read.Size())
	header, err := message.ReadHeader(read)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var from *address.Address
	for _, a := range headerAddresses(header, "From") {
		from = &a
		break
	}
	s.setEnvelope(from, append(headerAddresses(header, "To"), headerAddresses(header, "Cc")...))
	if err := s.faults.Err(); err != nil {
		return nil, err
	}
	if body, err = s.files.files[n].open(); err != nil {
		return nil, err
	}
	if line := bytes.IndexByte(first, '\n'); line == 0 || line > 0 && first[line-1] != '\r' {
		s.Size = 0 // the size grows
		return io.NopCloser(message.NormalizeLineEnds(body)), nil
	}
	return body, nil
}

// headerAddresses returns the deliverable addresses of a header field.
func headerAddresses(h message.Header, field string) (list []address.Address) {
	for _, a := range h.Addresses(field) {
		if a, err := address.Parse(a.String()); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// compose builds a message from the fields.
func (s *inboundSimulation) compose(host string, now time.Time) (io.ReadCloser, error) {
	in := s.in
	d := &message.Draft{Date: now, MessageID: in.MessageID, Subject: in.Subject, Text: in.Text, HTML: in.HTML, InReplyTo: in.InReplyTo}
	var to []address.Address
	named := func(field, text string) message.Address {
		n, err := address.ParseNameAddr(text)
		if err != nil {
			s.faults.Add(field, "invalid_address", "This must be an address such as you@example.com or Name <you@example.com>.")
		}
		to = append(to, n.Address)
		return message.Address{Name: n.Name, Local: n.Address.UnquotedLocal(), Domain: n.Address.Domain}
	}
	d.From = named("from", in.From)
	from := to[0]
	if in.ReplyTo != "" {
		d.ReplyTo = []message.Address{named("reply_to", in.ReplyTo)}
	}
	to = nil
	for _, l := range []struct {
		field string
		given []string
		into  *[]message.Address
	}{{"to", in.To, &d.To}, {"cc", in.Cc, &d.Cc}} {
		for i, text := range l.given {
			*l.into = append(*l.into, named(fmt.Sprintf("%s[%d]", l.field, i), text))
		}
	}
	if d.MessageID == "" {
		d.MessageID = "<" + fmt.Sprintf("%d.sandbox", now.UnixNano()) + "@" + host + ">"
	}
	if in.InReplyTo != "" {
		d.References = []string{in.InReplyTo}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		d.ExtraFields = append(d.ExtraFields, message.ExtraField{Name: name, Value: in.Headers[name]})
	}
	s.addAttachments(d)
	s.setEnvelope(&from, to)
	if len(s.faults) == 0 { // otherwise it would report the same faults in other words
		if err := mergeFaults(&s.faults, d.Check()); err != nil {
			return nil, err
		}
	}
	if err := s.faults.Err(); err != nil {
		return nil, err
	}
	return composeReader(d), nil
}

// composeReader composes a draft while it is read.
func composeReader(d *message.Draft) io.ReadCloser {
	out, in := io.Pipe()
	c := &composedMessage{PipeReader: out, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		_, err := message.Compose(in, d)
		in.CloseWithError(err)
	}()
	return c
}

type composedMessage struct {
	*io.PipeReader
	done chan struct{}
}

// Close waits until the draft is no longer read.
func (c *composedMessage) Close() error {
	err := c.PipeReader.Close()
	<-c.done
	return err
}

func (s *inboundSimulation) addAttachments(d *message.Draft) {
	total := int64(0)
	for _, f := range s.in.Attachments {
		inline := f.Disposition == "inline" || f.Disposition == "" && f.ContentID != ""
		one := message.Attachment{Filename: f.Filename, ContentType: f.ContentType, ContentID: f.ContentID, Inline: inline}
		if n := int(f.Content); n >= 0 && n < len(s.files.files) { // otherwise bad has the fault
			total += s.files.files[n].size
			one.Open = s.files.files[n].open
		}
		d.Attachments = append(d.Attachments, one)
	}
	if len(s.in.Attachments) > outbound.MaxAttachments {
		s.faults.Add("attachments", "too_many_attachments", "A message can have %d attachments.", outbound.MaxAttachments)
	}
	if total > outbound.MaxAttachmentBytes {
		s.faults.Add("attachments", "attachments_too_large", "The attachments together may have 25 MB (%d bytes) when decoded.", outbound.MaxAttachmentBytes)
	}
}
