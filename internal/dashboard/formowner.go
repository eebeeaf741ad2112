// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"cmp"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// formOwnerField is the field by which each form says whom it was made for. Since then the
// browser may have changed to another account, or mailbox, in another tab.
const formOwnerField = "made_for"

// codeWrongOwner is that of the fault of a form that was made for another.
const codeWrongOwner = "made_for_another"

// formOwner is the account that is looked at, or the mailbox whose owner visits; 0 if
// nobody is signed in.
func (v *requestContext) formOwner() db.ID {
	switch {
	case v.ownerMailbox != 0:
		return v.ownerMailbox
	case v.signedIn && !v.session.NeedsSecondFactor:
		return v.session.Account
	}
	return 0
}

// checkFormOwner returns a fault.Conflict for a form that was made for another. One that does
// not say is nobody else's.
func (v *requestContext) checkFormOwner(made string) error {
	if made == "" || made == v.formOwner().String() {
		return nil
	}
	again := "reload this page: what you entered is sent again."
	if v.isScript() {
		again = "press the button once more."
	}
	if v.ownerMailbox != 0 {
		return fault.New(fault.Conflict, codeWrongOwner, "This form was made for another mailbox, and you are signed in to %s now. Nothing was done. Sign in to the other in another tab, then %s", v.session.User.Email, again)
	}
	return fault.New(fault.Conflict, codeWrongOwner, "This form was made for another account, and you look at %s now. Nothing was done. Open the other in another tab, then %s", cmp.Or(v.account.Name, v.account.Email), again)
}

// addFormOwner is a page whose forms say whom they are made for.
func addFormOwner(page []byte, whose db.ID) (out []byte) {
	field := []byte(`<input type="hidden" name="` + formOwnerField + `" value="` + whose.String() + `">`)
	for {
		at := bytes.Index(page, []byte(`<form method="post"`))
		if at < 0 || whose == 0 {
			return append(out, page...)
		}
		at += bytes.IndexByte(page[at:], '>') + 1 // in attributes that is written &gt;
		out = append(append(out, page[:at]...), field...)
		page = page[at:]
	}
}
