// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"cmp"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// formOwnerField is the field with the account or mailbox for which a form was rendered. The
// browser may have switched to another one in another tab since then.
const formOwnerField = "made_for"

// codeWrongOwner is the code of the fault for a form of another account or mailbox.
const codeWrongOwner = "made_for_another"

// signedInOwner returns the id of the current account, or of the mailbox whose owner is signed in; 0 if
// nobody is signed in.
func (v *requestContext) signedInOwner() db.ID {
	switch {
	case v.ownerMailbox != 0:
		return v.ownerMailbox
	case v.signedIn && !v.session.NeedsSecondFactor:
		return v.session.Account
	}
	return 0
}

// checkFormOwner returns a fault.Conflict if a form was rendered for another account or mailbox. A
// form without the field is accepted.
func (v *requestContext) checkFormOwner(made string) error {
	if made == "" || made == v.signedInOwner().String() {
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

// addFormOwner adds the owner field to all forms of a page.
func addFormOwner(page []byte, whose db.ID) (out []byte) {
	field := []byte(`<input type="hidden" name="` + formOwnerField + `" value="` + whose.String() + `">`)
	for {
		at := bytes.Index(page, []byte(`<form method="post"`))
		if at < 0 || whose == 0 {
			return append(out, page...)
		}
		at += bytes.IndexByte(page[at:], '>') + 1 // in attributes, > is written as &gt;
		out = append(append(out, page[:at]...), field...)
		page = page[at:]
	}
}
