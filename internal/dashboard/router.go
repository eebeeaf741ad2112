// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/web"
)

// page is the result of a view.
type page struct {
	Template string // file name without extension
	Title    string
	Section  string // its entry in the navigation
	Owner    string // mailbox whose owner sees it; "" for pages of the dashboard
	Open     bool   // whether it is public: with a frame, too
	Part     bool   // whether it is a part of a page for a script, without a frame
	Status   int    // 200 if 0
	Data     any
}

// actionResult is the result of an action.
type actionResult struct {
	RedirectTo string // path to redirect to
	Summary    string // sentence about the result, for the user and the audit log
	Page       *page  // shown instead of a redirect, for content shown once, such as a new key
	// Customer is the account whose activity also shows an operator's action.
	Customer db.ID
	// Respond writes the response instead of a redirect, for one-time downloads.
	Respond func() error
}

type (
	view   func(v *requestContext) (page, error)
	action func(v *requestContext) (actionResult, error)
)

// permission is the permission that a route requires.
type permission int

const (
	permPublic   permission = iota // no sign-in needed
	permRead                       // any member of the account
	permWrite                      // members, but not readers
	permOwner                      // owners of the account
	permOperator                   // operators of the service

	// permReadMail is combined with one of these: it requires the right to read mail.
	permReadMail permission = 1 << 8
)

// router registers the routes. By default, views require permRead and actions permWrite.
type router struct {
	d      *Dashboard
	mux    *http.ServeMux
	routes []Route
}

// Route is a route of the dashboard.
type Route struct {
	Method, Path       string
	RequiresSignIn     bool // whether it requires sign-in
	RequiresMailAccess bool // whether it requires the right to read mail
}

func (r *router) register(method string, need permission, path string, f http.HandlerFunc) {
	r.routes = append(r.routes, Route{method, path, need != permPublic, need&permReadMail != 0})
	r.mux.HandleFunc(method+" "+path, f)
}

// view registers a page.
func (r *router) view(path string, f view) { r.viewFor(permRead, path, f) }

func (r *router) viewFor(need permission, path string, f view) {
	r.register("GET", need, path, func(w http.ResponseWriter, req *http.Request) {
		r.serve(w, req, need, func(v *requestContext) error {
			p, err := f(v)
			if err != nil {
				return err
			}
			return v.showPage(p)
		})
	})
}

// action registers a form's action. form is the view with the form, which is shown again if there
// are errors.
func (r *router) action(path string, f action, form view) { r.actionFor(permWrite, path, f, form) }

func (r *router) actionFor(need permission, path string, f action, form view) {
	r.register("POST", need, path, func(w http.ResponseWriter, req *http.Request) {
		r.serve(w, req, need, func(v *requestContext) error {
			err := v.readForm()
			if err != nil {
				return err
			}
			var did actionResult
			if need != permPublic && !v.isPersonal() {
				err = v.checkFormOwner(v.form.Get(formOwnerField))
			}
			if err == nil && need != permPublic {
				err = v.beginAudit()
			}
			if err == nil {
				did, err = f(v)
			}
			if err != nil {
				v.abortAudit(err)
				return v.redisplayForm(err, form)
			}
			return v.finish(did)
		})
	})
}

// upload registers the action of a form with a file. f reads the form as a stream of at most that
// many bytes.
func (r *router) upload(path string, most int64, f action, form view) {
	r.register("POST", permWrite, path, func(w http.ResponseWriter, req *http.Request) {
		r.serveLimited(most, w, req, permWrite, func(v *requestContext) error {
			var did actionResult
			err := v.beginAudit()
			if err == nil {
				did, err = f(v)
			}
			if err != nil {
				v.abortAudit(err)
				return v.redisplayForm(err, form)
			}
			return v.finish(did)
		})
	})
}

// redirectForms redirects GET requests for an action's path to the page that it belongs to. The
// browser shows that path above a form with an error.
func (r *router) redirectForms() {
	pages := map[string]bool{"/": true}
	for _, one := range r.routes {
		pages[one.Path] = pages[one.Path] || one.Method == "GET"
	}
	for _, one := range r.routes {
		up := 0
		for at := one.Path; !pages[at]; at = path.Dir(at) {
			up++
		}
		if up == 0 {
			continue
		}
		r.mux.HandleFunc("GET "+one.Path, func(w http.ResponseWriter, req *http.Request) {
			to := req.URL.EscapedPath()
			for range up {
				to = path.Dir(to)
			}
			http.Redirect(w, req, to, http.StatusSeeOther)
		})
	}
}

// download registers a download.
func (r *router) download(path string, f func(v *requestContext) error) {
	r.downloadFor(permRead, path, f)
}

func (r *router) downloadFor(need permission, path string, f func(v *requestContext) error) {
	r.register("GET", need, path, func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, need, f) })
}

// serve authorizes a request and handles errors and panics.
func (r *router) serve(w http.ResponseWriter, req *http.Request, need permission, f func(*requestContext) error) {
	if need != permPublic {
		r.serveLimited(maxForm, w, req, need, f)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(publicReadTimeout)) // the server has its own limit, too
	leave, ok := r.d.publicLimiter.Acquire(web.ClientAddr(req))
	if !ok { // an error page would use more memory
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests at the same time. Try again in a moment.", http.StatusTooManyRequests)
		return
	}
	defer leave()
	most := int64(maxPublicForm)
	if _, owner := (&requestContext{d: r.d, r: req}).ownerToken(); owner {
		most = maxOwnerForm
	}
	r.serveLimited(most, w, req, need, f)
}

// serveLimited is serve for requests whose bodies have at most that many bytes.
func (r *router) serveLimited(most int64, w http.ResponseWriter, req *http.Request, need permission, f func(*requestContext) error) {
	req.Body = http.MaxBytesReader(w, req.Body, most)
	v := &requestContext{d: r.d, w: w, r: req, ctx: req.Context()}
	web.Recover(r.d.Log, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		v.w = w
		v.serve(need, f)
	}), func(http.ResponseWriter, *http.Request) { v.showError(errors.New("panic")) }).ServeHTTP(w, req)
}

// serve authorizes the request, and shows an error.
func (v *requestContext) serve(need permission, f func(*requestContext) error) {
	err := v.authorize(need)
	if errors.Is(err, errSignInRequired) {
		v.redirectToSignIn()
		return
	}
	if err == nil {
		err = f(v)
	}
	if err != nil && !errors.Is(err, errResponded) {
		v.showError(err)
	}
}

// serveNotFound responds to unknown paths.
func (r *router) serveNotFound(w http.ResponseWriter, req *http.Request) {
	r.serve(w, req, permPublic, func(*requestContext) error { return notFound() })
}

func notFound() error { return fault.New(fault.NotFound, "not_found", "There is no such page.") }

// errResponded means that a view has written its own response.
var errResponded = errors.New("answered")

// errSignInRequired means that a page requires sign-in.
var errSignInRequired = errors.New("not signed in")

// authorize finds the session of a request and checks its permission.
func (v *requestContext) authorize(need permission) error {
	if c, err := v.r.Cookie(v.cookieName("session")); err == nil {
		in, err := v.d.Users.FindSession(v.ctx, c.Value)
		if err != nil && !fault.Is(err, fault.Unauthenticated) {
			return err
		}
		v.session, v.signedIn = in, err == nil
	}
	if v.signedIn && !v.session.NeedsSecondFactor {
		var err error
		if v.account, err = v.d.Accounts.Get(v.ctx, v.session.Account); err != nil {
			return err
		}
	} else if need != permPublic {
		return v.signedOutError()
	}
	may := need&permReadMail == 0 || v.session.ReadsMail
	switch need &^= permReadMail; {
	case need == permPublic:
	case v.account.Status == account.StatusSuspended && !v.isPersonal(): // personal pages lead to other accounts
		return fault.New(fault.Denied, "account_suspended", "This account is suspended. Ask the operator of the service.")
	case need == permWrite && v.session.Role == user.RoleReader,
		need == permOwner && v.session.Role != user.RoleOwner:
		return fault.New(fault.Denied, "role", "Your role does not allow that. Ask an owner of the account.")
	case !may:
		return errMailAccess
	case need == permOperator && !v.isOperator():
		return notFound()
	case need == permOperator && v.session.Role == user.RoleReader && v.r.Method != http.MethodGet:
		return fault.New(fault.Denied, "role", "Your role does not allow that. Ask an owner of the account.")
	}
	return nil
}

// errMailAccess is the fault for users who may not read mail.
var errMailAccess = fault.New(fault.Denied, "mail", "You may not read mail of this account. Ask an owner to allow it on the page People.")

// isPersonal reports whether a path is about the user, independent of the current account.
func (v *requestContext) isPersonal() bool {
	return strings.HasPrefix(v.r.URL.Path, "/profile") || isSecretPath(v.r)
}

// signedOutError returns the error for a request without a session. For a form it doesn't redirect:
// the entered values would be lost, and the browser can send them again.
func (v *requestContext) signedOutError() error {
	if v.r.Method != http.MethodPost || v.isScript() {
		return errSignInRequired
	}
	return fault.New(fault.Unauthenticated, "signed_out", "You are not signed in any more, so nothing was done. Sign in in another tab, then reload this page: what you entered is sent again.")
}

// redirectToSignIn redirects to the sign-in page, which leads back afterwards.
func (v *requestContext) redirectToSignIn() {
	to := "/sign-in"
	if v.r.Method == http.MethodGet && v.r.URL.Path != "/" && v.r.Header.Get("HX-Request") == "" {
		to += "?" + encodeQuery("to", v.r.URL.RequestURI())
	}
	v.redirect(to)
}

// redirect redirects to a local path.
func (v *requestContext) redirect(to string) {
	if v.r.Header.Get("HX-Request") != "" {
		v.w.Header().Set("HX-Redirect", to)
		v.w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
}

// isLocalPath reports whether a path from a request leads to a page of the dashboard.
func isLocalPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.ContainsAny(path, "\\\r\n\t")
}

// showError responds with an error page.
func (v *requestContext) showError(err error) {
	var f *fault.Error
	if errors.Is(err, context.Canceled) {
		return
	}
	if !errors.As(err, &f) || f.Kind == fault.Internal {
		// The log must not contain the path, which may contain a sign-in link.
		v.d.Log.ErrorContext(v.ctx, "a page failed", "request", v.requestID(), "page", v.r.Pattern, "error", err)
		f = fault.New(fault.Internal, "internal_error", "Something went wrong on our side. It was logged as request %s.", v.requestID())
	}
	status, title := web.Status(f.Kind), statusTitle(f.Kind)
	web.SetRetryAfter(v.w, f)
	if err := v.showPage(page{Template: "error", Title: title, Status: status, Data: v.newErrorPage(f)}); err != nil {
		v.d.Log.ErrorContext(v.ctx, "a page failed", "request", v.requestID(), "page", v.r.Pattern, "error", err)
		http.Error(v.w, title, status)
	}
}

// errorPage is the data of an error page, with a link to continue.
type errorPage struct {
	Message, To, Action string
	Beside              bool // whether to open the link in a new tab, so that a form in this one can be sent again
}

func (v *requestContext) newErrorPage(f *fault.Error) errorPage {
	s := errorPage{Message: f.Message, To: "/", Action: "Sign in", Beside: f.Kind == fault.Unauthenticated || f.Code == codeWrongOwner}
	path := v.r.URL.Path + "/"
	switch {
	case strings.HasPrefix(path, "/phone/"):
		s.To = "" // a phone has no other page here
	case strings.HasPrefix(path, "/mailbox/"):
		s.To, s.Action = "/mailbox", "To your mailbox"
	case f.Code == codeWrongOwner:
		s.To, s.Action = "/profile", "To your accounts"
	case v.signedIn && !v.session.NeedsSecondFactor:
		s.Action = "To the start"
	}
	return s
}

// statusTitle returns the title of an error page.
func statusTitle(k fault.Kind) string {
	switch k {
	case fault.Invalid:
		return "That needs correcting"
	case fault.Denied:
		return "Not allowed"
	case fault.Unauthenticated:
		return "Please sign in"
	case fault.NotFound:
		return "Not found"
	case fault.Conflict:
		return "That is not possible now"
	case fault.TooLarge:
		return "Too large"
	case fault.RateLimited:
		return "Too many tries"
	case fault.OverQuota:
		return "No room"
	case fault.Unavailable:
		return "Not available at the moment"
	}
	return "Something went wrong"
}
