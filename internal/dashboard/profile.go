// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"encoding/base64"
	"html/template"
	"image/png"

	"github.com/boombuler/barcode"
	"github.com/boombuler/barcode/qr"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/user"
)

// mine is what the page of the visitor's own things shows.
type mine struct {
	Sessions []user.Session
	Current  db.ID
	Left     int64 // recovery codes
	Accounts []belonging
}

type belonging struct {
	Account account.Account
	Role    user.Role
	Now     bool
}

func (d *Dashboard) profile(v *visit) (page, error) {
	m := mine{Current: v.in.ID}
	var err error
	if m.Sessions, err = d.Users.Sessions(v.ctx, v.in.User.ID); err != nil {
		return page{}, err
	}
	if m.Left, err = d.Users.RecoveryLeft(v.ctx, v.in.User.ID); err != nil {
		return page{}, err
	}
	of, err := d.Users.Memberships(v.ctx, v.in.User.ID)
	if err != nil {
		return page{}, err
	}
	for _, x := range of {
		acc, err := d.Accounts.Get(v.ctx, x.Account)
		if err != nil {
			return page{}, err
		}
		m.Accounts = append(m.Accounts, belonging{acc, x.Role, x.Account == v.in.Account})
	}
	return page{Template: "profile", Title: "You", Section: "profile", Data: m}, nil
}

func (d *Dashboard) rename(v *visit) (done, error) {
	return done{To: "/profile", Told: "Changed your name."}, d.Users.Rename(v.ctx, v.in.User.ID, v.text("name"))
}

func (d *Dashboard) changePassword(v *visit) (done, error) {
	err := d.Users.ChangePassword(v.ctx, v.in, v.form.Get("current"), v.form.Get("password"))
	return done{To: "/profile", Told: "Changed your password. Other browsers were signed out."}, err
}

func (d *Dashboard) lookAt(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	return done{To: "/"}, d.Users.LookAt(v.ctx, v.in, id)
}

func (d *Dashboard) endSession(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	return done{To: "/profile", Told: "Signed a browser out."}, d.Users.SignOut(v.ctx, v.in.User.ID, id)
}

func (d *Dashboard) endOthers(v *visit) (done, error) {
	return done{To: "/profile", Told: "Signed all other browsers out."}, d.Users.SignOutOthers(v.ctx, v.in.User.ID, v.in.ID)
}

// factorForm shows a new second factor, or the one of the form that was sent.
func (d *Dashboard) factorForm(v *visit) (page, error) {
	e, err := d.Users.NewEnrolment(v.in.User)
	if entered := v.text("secret"); err == nil && entered != "" {
		e, err = d.Users.Enrolling(v.in.User, entered)
	}
	if err != nil {
		return page{}, err
	}
	picture, err := qrCode(e.URL)
	return page{Template: "factor", Title: "Second factor", Section: "profile", Data: struct {
		Secret string
		QR     template.URL
	}{e.Secret, picture}}, err
}

func (d *Dashboard) enrol(v *visit) (done, error) {
	codes, err := d.Users.Enrol(v.ctx, v.in.User, v.text("secret"), v.text("code"))
	return recovery(codes, "Turned the second factor on."), err
}

func (d *Dashboard) unenrol(v *visit) (done, error) {
	return done{To: "/profile", Told: "Turned the second factor off."}, d.Users.Unenrol(v.ctx, v.in, v.text("code"))
}

func (d *Dashboard) newRecovery(v *visit) (done, error) {
	codes, err := d.Users.NewRecovery(v.ctx, v.in, v.text("code"))
	return recovery(codes, "Made new recovery codes."), err
}

func recovery(codes []string, told string) done {
	return done{Told: told, Show: &page{Template: "recovery", Title: "Recovery codes", Section: "profile", Data: codes}}
}

// qrCode draws what a phone can read, as the address of a picture.
func qrCode(text string) (template.URL, error) {
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err == nil {
		code, err = barcode.Scale(code, 400, 400)
	}
	var out bytes.Buffer
	if err == nil {
		err = png.Encode(&out, code)
	}
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(out.Bytes())), err //nolint:gosec // our own picture
}
