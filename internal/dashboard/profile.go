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

// userProfilePage is the data of the user's profile page.
type userProfilePage struct {
	Sessions []user.Session
	Current  db.ID
	Left     int64 // recovery codes left
	Accounts []membershipRow
}

type membershipRow struct {
	Account account.Account
	Role    user.Role
	Now     bool
}

func (d *Dashboard) userProfile(v *requestContext) (page, error) {
	m := userProfilePage{Current: v.session.ID}
	var err error
	if m.Sessions, err = d.Users.Sessions(v.ctx, v.session.User.ID); err != nil {
		return page{}, err
	}
	if m.Left, err = d.Users.CountRecoveryCodes(v.ctx, v.session.User.ID); err != nil {
		return page{}, err
	}
	of, err := d.Users.Memberships(v.ctx, v.session.User.ID)
	if err != nil {
		return page{}, err
	}
	for _, x := range of {
		acc, err := d.Accounts.Get(v.ctx, x.Account)
		if err != nil {
			return page{}, err
		}
		m.Accounts = append(m.Accounts, membershipRow{acc, x.Role, x.Account == v.session.Account})
	}
	return page{Template: "profile", Title: "You", Section: "profile", Data: m}, nil
}

func (d *Dashboard) changeName(v *requestContext) (actionResult, error) {
	return actionResult{RedirectTo: "/profile", Summary: "Changed your name."}, d.Users.Rename(v.ctx, v.session.User.ID, v.formText("name"))
}

func (d *Dashboard) changePassword(v *requestContext) (actionResult, error) {
	err := d.Users.ChangePassword(v.ctx, v.session, v.form.Get("current"), v.form.Get("password"))
	return actionResult{RedirectTo: "/profile", Summary: "Changed your password. Other browsers were signed out."}, err
}

func (d *Dashboard) switchAccount(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/"}, d.Users.SwitchAccount(v.ctx, v.session, id)
}

func (d *Dashboard) endSession(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/profile", Summary: "Signed a browser out."}, d.Users.SignOut(v.ctx, v.session.User.ID, id)
}

func (d *Dashboard) endOtherSessions(v *requestContext) (actionResult, error) {
	return actionResult{RedirectTo: "/profile", Summary: "Signed all other browsers out."}, d.Users.SignOutOthers(v.ctx, v.session.User.ID, v.session.ID)
}

// secondFactorForm shows a new second factor, or the submitted one.
func (d *Dashboard) secondFactorForm(v *requestContext) (page, error) {
	e, err := d.Users.NewEnrolment(v.session.User)
	if entered := v.formText("secret"); err == nil && entered != "" {
		e, err = d.Users.ParseEnrolment(v.session.User, entered)
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

func (d *Dashboard) enableSecondFactor(v *requestContext) (actionResult, error) {
	codes, err := d.Users.EnableTOTP(v.ctx, v.session.User, v.formText("secret"), v.formText("code"))
	return recoveryCodesResult(codes, "Turned the second factor on."), err
}

func (d *Dashboard) disableSecondFactor(v *requestContext) (actionResult, error) {
	return actionResult{RedirectTo: "/profile", Summary: "Turned the second factor off."}, d.Users.DisableTOTP(v.ctx, v.session, v.formText("code"))
}

func (d *Dashboard) renewRecoveryCodes(v *requestContext) (actionResult, error) {
	codes, err := d.Users.ReplaceRecoveryCodes(v.ctx, v.session, v.formText("code"))
	return recoveryCodesResult(codes, "Made new recovery codes."), err
}

func recoveryCodesResult(codes []string, told string) actionResult {
	return actionResult{Summary: told, Page: &page{Template: "recovery", Title: "Recovery codes", Section: "profile", Data: codes}}
}

// qrCode returns a QR code as a data URL.
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
