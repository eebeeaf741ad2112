// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/thread"
)

// Header fields that set the options of a submission which an API send has in its body. They are
// meant for the server: no field with this prefix is ever sent. Only an API key may use them. A
// mailbox's password gives no access to the account's templates, threads and metadata, and a mail
// program may redirect a message whose fields a third party wrote. So unknown fields are rejected
// for an API key only: its messages have the account's own authors.
const (
	optionPrefix         = "X-Mailstead-"
	optionIdempotencyKey = optionPrefix + "Idempotency-Key"
	optionMetadata       = optionPrefix + "Metadata"
	optionSchedule       = optionPrefix + "Schedule"
	optionTags           = optionPrefix + "Tags"
	optionTemplate       = optionPrefix + "Template"
	optionThread         = optionPrefix + "Thread"
	optionUnsubscribe    = optionPrefix + "Unsubscribe"
	optionVariables      = optionPrefix + "Variables"
)

// optionNames are the names of all option fields.
var optionNames = []string{optionIdempotencyKey, optionMetadata, optionSchedule, optionTags, optionTemplate, optionThread, optionUnsubscribe, optionVariables}

// reservedPrefix begins other names that are reserved for the service.
const reservedPrefix = "X-Service-"

// maxNamedFields is the maximum number of unknown fields that an error names.
const maxNamedFields = 5

// submitOptions are the options that a submission sets by header fields.
type submitOptions struct {
	metadata       string    // a JSON object
	tags           string    // as tag.Join returns them
	thread         string    // "" for none
	sendAt         time.Time // zero: immediately
	idempotencyKey string    // an idempotency key; "" for none
	template       string    // id or alias; "" for none
	variables      string    // for the template: a JSON object, or ""

	offersUnsubscribe bool
	unsubscribe       Unsubscribe
}

// isOptionField reports whether a field has our prefix, in any case.
func isOptionField(f message.Field) bool { return hasPrefixFold(f, optionPrefix) }

func hasPrefixFold(f message.Field, prefix string) bool {
	return len(f.Name) >= len(prefix) && strings.EqualFold(string(f.Name[:len(prefix)]), prefix)
}

// unknownFields returns a sentence about each field with a name of the service that is no option,
// then the names of the options.
func unknownFields(h message.Header) (bad []string) {
	seen := map[string]bool{}
	for f := range h.Fields() {
		name := string(f.Name)
		known := !hasPrefixFold(f, reservedPrefix) && !isOptionField(f) || slices.ContainsFunc(optionNames, f.Is)
		if known || seen[strings.ToLower(name)] || len(bad) == maxNamedFields {
			continue
		}
		seen[strings.ToLower(name)] = true
		if !isHeaderName(name) { // an error doesn't repeat it: it may be anything
			name = "whose name has other characters than letters, digits and hyphens"
		}
		bad = append(bad, "The header "+name+" is not supported.")
	}
	if len(bad) > 0 {
		bad = append(bad, "The supported ones of the service are "+strings.Join(optionNames, ", ")+".")
	}
	return bad
}

// readSubmitOptions reads the option fields. The error is one fault.Invalid with all invalid and
// all unknown fields.
func readSubmitOptions(h message.Header, now time.Time) (submitOptions, error) {
	w := submitOptions{metadata: "{}"}
	bad := unknownFields(h)
	wrong := func(name, why string) { bad = append(bad, "The header "+name+" is not valid: "+why) }
	for _, name := range optionNames {
		all := h.All(name)
		if len(all) == 0 {
			continue
		}
		if len(all) > 1 {
			wrong(name, "It is given more than once.")
			continue
		}
		if why := w.readField(name, all[0].Decoded(), now); why != "" {
			wrong(name, why)
		}
	}
	if w.variables != "" && w.template == "" {
		wrong(optionVariables, "There is no "+optionTemplate+" that they are for.")
	}
	if len(bad) > 0 {
		return w, fault.New(fault.Invalid, "invalid_header", "%s", strings.Join(bad, " "))
	}
	return w, nil
}

// invalidOption returns the fault for a field with an invalid value.
func invalidOption(name, why string) error {
	return fault.New(fault.Invalid, "invalid_header", "The header %s is not valid: %s", name, why)
}

// readField reads the value of one field. It returns what is wrong with the value, or "".
func (w *submitOptions) readField(name, value string, now time.Time) (why string) {
	switch name {
	case optionMetadata:
		var bad fault.FieldErrors
		l := validSend{metadata: "{}"}
		if value == "" {
			return "Metadata is an object."
		}
		if l.readMetadata(&SendRequest{Metadata: []byte(value)}, &bad); len(bad) > 0 {
			return bad[0].Message
		}
		w.metadata = l.metadata
	case optionThread:
		if !thread.ValidID(value) {
			return "A thread id is 1 to 255 printable characters."
		}
		w.thread = value
	case optionSchedule:
		at, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return "Give a time such as 2027-01-31T09:00:00Z (RFC 3339)."
		}
		due, bad := normalizeSendAt(at, now)
		if bad != nil {
			return bad.Message
		}
		w.sendAt = due
	case optionIdempotencyKey:
		if value == "" {
			return "An idempotency key is 1 to 256 printable characters."
		}
		w.idempotencyKey = value
	case optionTags:
		var bad fault.FieldErrors
		var l validSend
		var list []string
		for one := range strings.SplitSeq(value, ",") {
			list = append(list, strings.TrimSpace(one))
		}
		if l.readTags(list, &bad); len(bad) > 0 {
			return bad[0].Message
		}
		w.tags = l.tags
	case optionTemplate:
		if !thread.ValidID(value) {
			return "Give the id or the alias of a template."
		}
		w.template = value
	case optionVariables:
		if value == "" {
			return "This must be an object."
		}
		w.variables = value
	case optionUnsubscribe:
		w.offersUnsubscribe = true
		return w.unsubscribe.readField(value)
	}
	return ""
}

// readField reads the value of optionUnsubscribe: empty or "true" for a link that the service
// hosts; else an https URL, an address or mailto URI, or both with a comma between, each with or
// without the angle brackets of List-Unsubscribe. It returns what is wrong with the value, or "".
func (u *Unsubscribe) readField(value string) (why string) {
	if value == "" || strings.EqualFold(value, "true") {
		return ""
	}
	for one := range strings.SplitSeq(value, ",") {
		one = strings.TrimSpace(one)
		if inside, ok := strings.CutPrefix(one, "<"); ok {
			one = strings.TrimSuffix(inside, ">")
		}
		into := &u.Mailto
		if _, rest, _ := strings.Cut(one, ":"); strings.HasPrefix(rest, "//") {
			into = &u.URL
		}
		if one == "" || *into != "" {
			return "Give true, an https URL, a mailto URI, or a URL and a mailto URI with a comma between."
		}
		*into = one
	}
	return ""
}

// joinThread sets the thread of a submission: the requested one, or else that of the message which
// it answers. A message with a named thread that doesn't say what it answers gets References, so
// that the recipients' programs show it in the thread.
func (o *Outbox) joinThread(ctx context.Context, r *row, name string, h message.Header) (err error) {
	answers := thread.RepliedIDs(h)
	if name == "" {
		r.thread, err = o.Threads.FindOrStart(ctx, r.account, r.onlyDomain, answers)
		return err
	}
	r.thread = name
	if h.Count("In-Reply-To")+h.Count("References") > 0 {
		return nil
	}
	at, err := o.Threads.NewAssigner(r.account, r.onlyDomain).Assign(ctx, thread.Message{ID: r.id, MessageID: h.MessageID()}, name, "")
	if err != nil || at.InReplyTo == "" {
		return err
	}
	r.addedFields = append(r.addedFields, "In-Reply-To: "+at.InReplyTo+"\r\nReferences: "+strings.Join(at.References, "\r\n ")+"\r\n"...)
	return nil
}

// fingerprint identifies the content that an idempotency key stands for: the envelope and the
// message, except for the fields that a program regenerates when it retries.
func (s *Submission) fingerprint(r *blob.Reader, h message.Header, body, size int64) (sum [sha256.Size]byte, err error) {
	hash := sha256.New()
	from := ""
	if s.From != nil {
		from = s.From.Key()
	}
	_, _ = io.WriteString(hash, from+"\x00") // writing to a hash never fails
	for _, to := range s.To {
		_, _ = io.WriteString(hash, to.Key()+"\x00")
	}
	_, _ = hash.Write(h.WithoutFields("Date", "Message-ID"))
	_, err = io.Copy(hash, io.NewSectionReader(r, body, size-body))
	hash.Sum(sum[:0])
	return sum, err
}

// idempotencyError converts an error of an idempotency key for SMTP: while another request with the
// key is in progress, the client may retry in a moment.
func idempotencyError(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	kind := f.Kind
	if kind == fault.Conflict {
		kind = fault.RateLimited
	}
	return fault.New(kind, f.Code, "The header %s: %s", optionIdempotencyKey, f.Message)
}
