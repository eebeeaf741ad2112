// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// replyAndForwardingForms is the data of the forms for forwarding and the vacation reply, for the
// customer and for the mailbox owner.
type replyAndForwardingForms struct {
	Mailbox  mailbox.Mailbox
	Vacation mailbox.Vacation
	Path     string // path of the page
	now      time.Time
}

// The options of the two forms.
const yes, no = "yes", "no"

// Answering returns the options for the vacation reply.
func (replyAndForwardingForms) Answering() [][2]string { return [][2]string{{no, "No"}, {yes, "Yes"}} }

// Keeping returns the options for keeping a copy of forwarded mail.
func (replyAndForwardingForms) Keeping() [][2]string {
	return [][2]string{{yes, "Yes, it is here too"}, {no, "No, it is only forwarded"}}
}

// Answers returns the selected option for the vacation reply.
func (s replyAndForwardingForms) Answers() string { return yesNo(s.Vacation.Enabled) }

// Keeps returns the selected option for keeping a copy.
func (s replyAndForwardingForms) Keeps() string { return yesNo(s.Mailbox.KeepCopy) }

func yesNo(is bool) string {
	if is {
		return yes
	}
	return no
}

// Lines returns the forwarding addresses, one per line.
func (s replyAndForwardingForms) Lines() string { return strings.Join(s.Mailbox.ForwardTo(), "\n") }

// State returns the state of the vacation reply in a word.
func (s replyAndForwardingForms) State() string {
	v := s.Vacation
	switch {
	case !v.Enabled:
		return "off"
	case s.now.Before(v.StartsAt):
		return "scheduled"
	case v.Active(s.now):
		return "active"
	}
	return "over"
}

// formTimeLayout is the format of times in a form, in UTC.
const formTimeLayout = "2006-01-02T15:04"

// From returns the start of the vacation reply for the form.
func (s replyAndForwardingForms) From() string { return formatFormTime(s.Vacation.StartsAt) }

// Until returns the end of the vacation reply for the form.
func (s replyAndForwardingForms) Until() string { return formatFormTime(s.Vacation.EndsAt) }

func formatFormTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(formTimeLayout)
}

func (d *Dashboard) loadReplyAndForwardingForms(v *requestContext, m mailbox.Mailbox, path string) (replyAndForwardingForms, error) {
	vacation, err := d.Mailboxes.Vacation(v.ctx, m.Account, m.ID)
	return replyAndForwardingForms{Mailbox: m, Vacation: vacation, Path: path, now: d.Now()}, err
}

// formTime parses a time in a form, in UTC; it returns the zero time for none.
func (v *requestContext) formTime(bad *fault.FieldErrors, field string) time.Time {
	text := v.formText(field)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(formTimeLayout, text)
	if err != nil {
		bad.Add(field, "invalid_time", "Give a day and a time.")
	}
	return t
}

func (d *Dashboard) saveVacation(v *requestContext, m mailbox.Mailbox, path string) (actionResult, error) {
	var bad fault.FieldErrors
	n := mailbox.Vacation{Enabled: v.formText("enabled") == yes, Subject: v.formText("subject"), Text: v.form.Get("text")}
	n.StartsAt, n.EndsAt = v.formTime(&bad, "starts_at"), v.formTime(&bad, "ends_at")
	var err error
	if n.Days, err = v.formInt("interval_days"); bad.Merge(err) != nil {
		return actionResult{}, err
	}
	if err := bad.Err(); err != nil {
		return actionResult{}, err
	}
	if _, err := d.Mailboxes.SetVacation(v.ctx, m.Account, m.ID, n); err != nil {
		return actionResult{}, err
	}
	told := "Turned the vacation reply of " + m.Address + " off."
	if n.Enabled {
		told = "Set the vacation reply of " + m.Address + "."
	}
	return actionResult{RedirectTo: path, Summary: told}, nil
}

func (d *Dashboard) saveForwarding(v *requestContext, m mailbox.Mailbox, path string) (actionResult, error) {
	to := strings.FieldsFunc(v.formText("forward_to"), func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	keep := v.formText("keep_copy") != no
	if _, err := d.Mailboxes.Update(v.ctx, m.Account, m.ID, mailbox.Change{ForwardTo: &to, KeepCopy: &keep}); err != nil {
		return actionResult{}, err
	}
	told := m.Address + " forwards no mail any more."
	if len(to) > 0 {
		told = "Mail of " + m.Address + " is forwarded."
	}
	return actionResult{RedirectTo: path, Summary: told}, nil
}

func (d *Dashboard) setVacation(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.saveVacation(v, m, "/mailboxes/"+m.ID.String())
}

func (d *Dashboard) setForwarding(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.saveForwarding(v, m, "/mailboxes/"+m.ID.String())
}

func (d *Dashboard) setOwnerVacation(v *requestContext) (actionResult, error) {
	m, err := d.requireOwner(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.saveVacation(v, m, "/mailbox")
}

func (d *Dashboard) setOwnerForwarding(v *requestContext) (actionResult, error) {
	m, err := d.requireOwner(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.saveForwarding(v, m, "/mailbox")
}
