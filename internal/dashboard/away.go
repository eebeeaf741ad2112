// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// shownAway is what a page shows of where a mailbox's mail goes as well, and of
// what it answers: the customer's and the mailbox owner's.
type shownAway struct {
	Mailbox  mailbox.Mailbox
	Vacation mailbox.Vacation
	Path     string // of the page
	now      time.Time
}

// The choices of the two forms.
const yes, no = "yes", "no"

// Answering and Keeping are the choices of the forms.
func (shownAway) Answering() [][2]string { return [][2]string{{no, "No"}, {yes, "Yes"}} }

// Keeping are those of what is forwarded.
func (shownAway) Keeping() [][2]string {
	return [][2]string{{yes, "Yes, it is here too"}, {no, "No, it is only forwarded"}}
}

// Answers and Keeps are what is chosen.
func (s shownAway) Answers() string { return chosen(s.Vacation.Enabled) }

// Keeps says whether what is forwarded is filed too.
func (s shownAway) Keeps() string { return chosen(s.Mailbox.KeepCopy) }

func chosen(is bool) string {
	if is {
		return yes
	}
	return no
}

// Lines are the addresses that it forwards to, one to a line.
func (s shownAway) Lines() string { return strings.Join(s.Mailbox.ForwardTo(), "\n") }

// State says in a word whether it answers.
func (s shownAway) State() string {
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

// minutes is how a form has a time, in UTC.
const minutes = "2006-01-02T15:04"

// From and Until are the times of the answer as the form has them.
func (s shownAway) From() string { return entered(s.Vacation.StartsAt) }

// Until is when it ends.
func (s shownAway) Until() string { return entered(s.Vacation.EndsAt) }

func entered(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(minutes)
}

func (d *Dashboard) awayOf(v *visit, m mailbox.Mailbox, path string) (shownAway, error) {
	vacation, err := d.Mailboxes.Vacation(v.ctx, m.Account, m.ID)
	return shownAway{Mailbox: m, Vacation: vacation, Path: path, now: d.Now()}, err
}

// time reads a time of a form, in UTC; zero for none.
func (v *visit) time(bad *fault.Fields, field string) time.Time {
	text := v.text(field)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(minutes, text)
	if err != nil {
		bad.Add(field, "invalid_time", "Give a day and a time.")
	}
	return t
}

func (d *Dashboard) setAway(v *visit, m mailbox.Mailbox, path string) (done, error) {
	var bad fault.Fields
	n := mailbox.Vacation{Enabled: v.text("enabled") == yes, Subject: v.text("subject"), Text: v.form.Get("text")}
	n.StartsAt, n.EndsAt = v.time(&bad, "starts_at"), v.time(&bad, "ends_at")
	var err error
	if n.Days, err = v.number("interval_days"); bad.Merge(err) != nil {
		return done{}, err
	}
	if err := bad.Err(); err != nil {
		return done{}, err
	}
	if _, err := d.Mailboxes.SetVacation(v.ctx, m.Account, m.ID, n); err != nil {
		return done{}, err
	}
	told := "Turned the vacation reply of " + m.Address + " off."
	if n.Enabled {
		told = "Set the vacation reply of " + m.Address + "."
	}
	return done{To: path, Told: told}, nil
}

func (d *Dashboard) setForward(v *visit, m mailbox.Mailbox, path string) (done, error) {
	to := strings.FieldsFunc(v.text("forward_to"), func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	keep := v.text("keep_copy") != no
	if _, err := d.Mailboxes.Update(v.ctx, m.Account, m.ID, mailbox.Change{ForwardTo: &to, KeepCopy: &keep}); err != nil {
		return done{}, err
	}
	told := m.Address + " forwards no mail any more."
	if len(to) > 0 {
		told = "Mail of " + m.Address + " is forwarded."
	}
	return done{To: path, Told: told}, nil
}

func (d *Dashboard) vacation(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	return d.setAway(v, m, "/mailboxes/"+m.ID.String())
}

func (d *Dashboard) forwardMailbox(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	return d.setForward(v, m, "/mailboxes/"+m.ID.String())
}

func (d *Dashboard) ownVacation(v *visit) (done, error) {
	m, err := d.owner(v)
	if err != nil {
		return done{}, err
	}
	return d.setAway(v, m, "/mailbox")
}

func (d *Dashboard) ownForward(v *visit) (done, error) {
	m, err := d.owner(v)
	if err != nil {
		return done{}, err
	}
	return d.setForward(v, m, "/mailbox")
}
