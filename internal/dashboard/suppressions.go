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

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/web"
)

// maxImportBytes limits the file of an import, in bytes.
const maxImportBytes = 16 << 20

var (
	reasonOptions       = [][2]string{{"manual", "Added by hand"}, {"bounce", "Bounced"}, {"complaint", "Complained"}, {"unsubscribe", "Unsubscribed"}}
	reasonFilterOptions = append([][2]string{{"", "Any"}}, reasonOptions...)
)

func (d *Dashboard) suppressions(v *requestContext) (page, error) {
	q := v.r.URL.Query()
	at := v.listPage()
	data := struct {
		List         []suppression.Entry
		Pager        pager
		Why          [][2]string
		Reasons      [][2]string
		Find, Reason string
	}{Why: reasonFilterOptions, Reasons: reasonOptions, Find: strings.TrimSpace(q.Get("find")), Reason: q.Get("why")}
	shown := page{Template: "suppressions", Title: "Suppressions", Section: "suppressions"}
	filter := suppression.Filter{Reason: parseReason(data.Reason)}
	var err error
	if data.Find != "" {
		if filter.Address, err = address.Parse(data.Find); err != nil {
			var bad fault.FieldErrors
			bad.Add("find", "invalid_address", "Give a whole address, such as bob@example.org.")
			v.setFormErrors(bad.Err())
			shown.Status, shown.Data = http.StatusUnprocessableEntity, data
			return shown, nil //nolint:nilerr // it is shown beside the field
		}
	}
	var more bool
	if data.List, more, err = d.Suppressions.List(v.ctx, v.session.Account, filter, at); err != nil {
		return page{}, err
	}
	if n := len(data.List); n > 0 {
		data.Pager = newSearchPager("/suppressions", q, at, n, more, data.List[0].ID, data.List[n-1].ID, nextCursor(at, data.List))
	}
	shown.Data = data
	return shown, nil
}

// nextCursor returns where a list continues in the requested direction.
func nextCursor(at db.Page, list []suppression.Entry) db.ID {
	if at.After == 0 && at.Before != 0 {
		return list[0].ID
	}
	return list[len(list)-1].ID
}

// parseReason parses a reason; it returns "" for an unknown one.
func parseReason(text string) suppression.Reason {
	for _, known := range suppression.Reasons {
		if string(known) == text {
			return known
		}
	}
	return ""
}

func (d *Dashboard) suppress(v *requestContext) (actionResult, error) {
	var bad fault.FieldErrors
	why := parseReason(v.formText("reason"))
	if why == "" {
		bad.Add("reason", "unknown_reason", "Choose one of the reasons.")
	}
	given := strings.FieldsFunc(v.form.Get("addresses"), func(c rune) bool { return strings.ContainsRune(" ,;\t\r\n", c) })
	if len(given) == 0 || len(given) > suppression.MaxPutAddresses {
		bad.Add("addresses", "wrong_number", "Give 1 to %d addresses; the import takes more.", suppression.MaxPutAddresses)
		given = nil
	}
	addresses := make([]address.Address, len(given))
	for i, text := range given {
		var err error
		if addresses[i], err = address.Parse(text); err != nil {
			bad.Add("addresses", "invalid_address", "The %s of these is no address such as bob@example.org.", ordinal(i+1))
		} else if suppression.IsSimulator(addresses[i]) {
			bad.Add("addresses", "simulator_address", "Simulator addresses can't be added to the list.")
		}
	}
	if err := bad.Err(); err != nil {
		return actionResult{}, err
	}
	_, err := d.Suppressions.Put(v.ctx, v.session.Account, addresses, why)
	told := "Suppressed " + addresses[0].String() + "."
	if n := len(addresses); n > 1 {
		told = fmt.Sprintf("Suppressed %d addresses.", n)
	}
	return actionResult{RedirectTo: "/suppressions", Summary: told}, err
}

// ordinal returns 1st, 2nd, 3rd, 4th…
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

func (d *Dashboard) unsuppress(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	entry, err := d.Suppressions.Get(v.ctx, v.session.Account, id.String())
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/suppressions", Summary: "Allowed " + entry.Address + " again."}, d.Suppressions.Delete(v.ctx, v.session.Account, id.String())
}

// importSuppressions imports a file while it arrives. The form's reason field comes before the
// file.
func (d *Dashboard) importSuppressions(v *requestContext) (actionResult, error) {
	body := v.uploadBody()
	form, err := v.r.MultipartReader()
	if err != nil {
		return actionResult{}, badForm()
	}
	why := suppression.ReasonManual
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return actionResult{}, missingCSVFile()
		}
		if err != nil {
			return actionResult{}, csvUploadError(err)
		}
		switch part.FormName() {
		case formOwnerField:
			made, err := io.ReadAll(io.LimitReader(part, 100))
			if err == nil {
				err = v.checkFormOwner(string(made))
			}
			if err != nil {
				_, _ = io.Copy(io.Discard, v.r.Body) // otherwise the browser might not show the error
				return actionResult{}, csvUploadError(err)
			}
		case "fallback":
			text, err := io.ReadAll(io.LimitReader(part, 100))
			if err != nil {
				return actionResult{}, csvUploadError(err)
			}
			v.form = url.Values{"fallback": {string(text)}}
			if known := parseReason(string(text)); known != "" {
				why = known
			}
		case "file":
			if part.FileName() == "" {
				return actionResult{}, missingCSVFile()
			}
			out, err := d.Suppressions.Import(v.ctx, v.session.Account, part, why)
			body.PrepareResponse(err == nil)
			if err != nil {
				return actionResult{}, csvUploadError(err)
			}
			return actionResult{Summary: fmt.Sprintf("Imported suppressed addresses: %d new, %d known, %d rejected.", out.Added, out.Existing, out.Rejected),
				Page: &page{Template: "imported", Title: "Imported", Section: "suppressions", Data: out}}, nil
		}
	}
}

func missingCSVFile() error {
	var bad fault.FieldErrors
	bad.Add("file", "required", "Choose a CSV file.")
	return bad.Err()
}

// csvUploadError converts an error of a streamed form.
func csvUploadError(err error) error {
	var tooBig *http.MaxBytesError
	var known *fault.Error
	switch {
	case errors.As(err, &tooBig):
		return fault.New(fault.TooLarge, "file_too_large", "The file may have %s; split it. What was read until there is on the list.", bytesize.Format(maxImportBytes))
	case errors.As(err, &known):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Invalid, "upload_broken", "The file stopped coming. What was read until there is on the list; send it again.")
	}
	return badForm()
}

func (d *Dashboard) exportSuppressions(v *requestContext) error {
	out := &suppression.CSVResponseWriter{ResponseWriter: v.w}
	err := d.Suppressions.Export(v.ctx, v.session.Account, out)
	if err != nil && out.Started {
		web.AbortResponse(v.w, v.r, d.Log, err)
	}
	return err
}
