// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/suppression"
)

// maxImport bounds the file of an import, in bytes.
const maxImport = 16 << 20

var (
	reasons = [][2]string{{"manual", "Added by hand"}, {"bounce", "Bounced"}, {"complaint", "Complained"}, {"unsubscribe", "Unsubscribed"}}
	anyOf   = append([][2]string{{"", "Any"}}, reasons...)
)

func (d *Dashboard) suppressions(v *visit) (page, error) {
	q := v.r.URL.Query()
	at := v.pageOf()
	data := struct {
		List         []suppression.Entry
		Pager        pager
		Why          [][2]string
		Reasons      [][2]string
		Find, Reason string
	}{Why: anyOf, Reasons: reasons, Find: strings.TrimSpace(q.Get("find")), Reason: q.Get("why")}
	shown := page{Template: "suppressions", Title: "Suppressions", Section: "suppressions"}
	filter := suppression.Filter{Reason: reason(data.Reason)}
	var err error
	if data.Find != "" {
		if filter.Address, err = address.Parse(data.Find); err != nil {
			var bad fault.Fields
			bad.Add("find", "invalid_address", "Give a whole address, such as bob@example.org.")
			v.mark(bad.Err())
			shown.Status, shown.Data = http.StatusUnprocessableEntity, data
			return shown, nil //nolint:nilerr // it is shown beside the field
		}
	}
	var more bool
	if data.List, more, err = d.Suppressions.List(v.ctx, v.in.Account, filter, at); err != nil {
		return page{}, err
	}
	if n := len(data.List); n > 0 {
		data.Pager = pagerIn("/suppressions", q, at, n, more, data.List[0].ID, data.List[n-1].ID, end(at, data.List))
	}
	shown.Data = data
	return shown, nil
}

// end is where a list goes on, in the direction that was asked for.
func end(at db.Page, list []suppression.Entry) db.ID {
	if at.After == 0 && at.Before != 0 {
		return list[0].ID
	}
	return list[len(list)-1].ID
}

// reason reads a reason; what is none is "".
func reason(text string) suppression.Reason {
	for _, known := range suppression.Reasons {
		if string(known) == text {
			return known
		}
	}
	return ""
}

func (d *Dashboard) suppress(v *visit) (done, error) {
	var bad fault.Fields
	why := reason(v.text("reason"))
	if why == "" {
		bad.Add("reason", "unknown_reason", "Choose one of the reasons.")
	}
	given := strings.FieldsFunc(v.form.Get("addresses"), func(c rune) bool { return strings.ContainsRune(" ,;\t\r\n", c) })
	if len(given) == 0 || len(given) > suppression.MaxPut {
		bad.Add("addresses", "wrong_number", "Give 1 to %d addresses; the import takes more.", suppression.MaxPut)
		given = nil
	}
	addresses := make([]address.Address, len(given))
	for i, text := range given {
		var err error
		if addresses[i], err = address.Parse(text); err != nil {
			bad.Add("addresses", "invalid_address", "The %s of these is no address such as bob@example.org.", ordinal(i+1))
		} else if suppression.Simulator(addresses[i]) {
			bad.Add("addresses", "simulator_address", "Addresses of the simulator are never on the list.")
		}
	}
	if err := bad.Err(); err != nil {
		return done{}, err
	}
	_, err := d.Suppressions.Put(v.ctx, v.in.Account, addresses, why)
	told := "Suppressed " + addresses[0].String() + "."
	if n := len(addresses); n > 1 {
		told = fmt.Sprintf("Suppressed %d addresses.", n)
	}
	return done{To: "/suppressions", Told: told}, err
}

// ordinal is 1st, 2nd, 3rd, 4th…
func ordinal(n int) string {
	ending := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			ending = "st"
		case 2:
			ending = "nd"
		case 3:
			ending = "rd"
		}
	}
	return fmt.Sprint(n, ending)
}

func (d *Dashboard) unsuppress(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	entry, err := d.Suppressions.Get(v.ctx, v.in.Account, id.String())
	if err != nil {
		return done{}, err
	}
	return done{To: "/suppressions", Told: "Allowed " + entry.Address + " again."}, d.Suppressions.Delete(v.ctx, v.in.Account, id.String())
}

// importSuppressions takes a file in as it arrives. The form's reason stands
// before it.
func (d *Dashboard) importSuppressions(v *visit) (done, error) {
	body := v.arriving()
	form, err := v.r.MultipartReader()
	if err != nil {
		return done{}, badForm()
	}
	why := suppression.Manual
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return done{}, noFile()
		}
		if err != nil {
			return done{}, unread(err)
		}
		switch part.FormName() {
		case madeFor:
			made, err := io.ReadAll(io.LimitReader(part, 100))
			if err == nil {
				err = v.meant(string(made))
			}
			if err != nil {
				_, _ = io.Copy(io.Discard, v.r.Body) // else the browser might not read why
				return done{}, unread(err)
			}
		case "fallback":
			text, err := io.ReadAll(io.LimitReader(part, 100))
			if err != nil {
				return done{}, unread(err)
			}
			v.form = url.Values{"fallback": {string(text)}}
			if known := reason(string(text)); known != "" {
				why = known
			}
		case "file":
			if part.FileName() == "" {
				return done{}, noFile()
			}
			out, err := d.Suppressions.Import(v.ctx, v.in.Account, part, why)
			body.End(err == nil)
			if err != nil {
				return done{}, unread(err)
			}
			return done{Told: fmt.Sprintf("Imported suppressed addresses: %d new, %d known, %d rejected.", out.Added, out.Existing, out.Rejected),
				Show: &page{Template: "imported", Title: "Imported", Section: "suppressions", Data: out}}, nil
		}
	}
}

func noFile() error {
	var bad fault.Fields
	bad.Add("file", "required", "Choose a CSV file.")
	return bad.Err()
}

// unread tells an error of a form that comes in as a stream.
func unread(err error) error {
	var tooBig *http.MaxBytesError
	var known *fault.Error
	switch {
	case errors.As(err, &tooBig):
		return fault.New(fault.TooLarge, "file_too_large", "The file may have %s; split it. What was read until there is on the list.", size(maxImport))
	case errors.As(err, &known):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Invalid, "upload_broken", "The file stopped coming. What was read until there is on the list; send it again.")
	}
	return badForm()
}

// exportTime is how long a page of an export may take to be read.
const exportTime = time.Minute

func (d *Dashboard) exportSuppressions(v *visit) error {
	out := &export{w: v.w}
	err := d.Suppressions.Export(v.ctx, v.in.Account, out)
	if err != nil && out.begun { // half of the list must not look whole
		if v.ctx.Err() == nil {
			v.d.Log.ErrorContext(v.ctx, "an export broke off", "request", v.requestID(), "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	return err
}

// export begins the answer with the first bytes, so that a failure before them
// gets a page of its own.
type export struct {
	w     http.ResponseWriter
	begun bool
}

func (e *export) Write(p []byte) (int, error) {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		e.w.Header().Set("Content-Disposition", `attachment; filename="suppressions.csv"`)
	}
	_ = http.NewResponseController(e.w).SetWriteDeadline(time.Now().Add(exportTime)) // the server has a bound of its own, too
	return e.w.Write(p)
}
