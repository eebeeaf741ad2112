// SPDX-License-Identifier: Apache-2.0

package wire

// Command is one command of a client, a pointer to one of this package's
// structs.
type Command interface {
	// Name returns the command's name in upper case, such as "UID FETCH".
	Name() string
}

// simpleCommands have no arguments.
var simpleCommands = map[string]func() Command{
	"CAPABILITY":     func() Command { return &Capability{} },
	"NOOP":           func() Command { return &Noop{} },
	"LOGOUT":         func() Command { return &Logout{} },
	"STARTTLS":       func() Command { return &StartTLS{} },
	"UNAUTHENTICATE": func() Command { return &Unauthenticate{} },
	"NAMESPACE":      func() Command { return &Namespace{} },
	"IDLE":           func() Command { return &Idle{} },
	"CHECK":          func() Command { return &Check{} },
	"CLOSE":          func() Command { return &Close{} },
	"UNSELECT":       func() Command { return &Unselect{} },
	"EXPUNGE":        func() Command { return &Expunge{} },
}

// argumentParsers read the arguments of commands that have some.
var argumentParsers = map[string]func(*Reader) Command{
	"LOGIN":        (*Reader).login,
	"AUTHENTICATE": (*Reader).authenticate,
	"SELECT":       func(r *Reader) Command { return r.selectMailbox(false) },
	"EXAMINE":      func(r *Reader) Command { return r.selectMailbox(true) },
	"CREATE":       (*Reader).create,
	"DELETE":       func(r *Reader) Command { return &Delete{r.mailbox()} },
	"RENAME":       (*Reader).rename,
	"SUBSCRIBE":    func(r *Reader) Command { return &Subscribe{r.mailbox()} },
	"UNSUBSCRIBE":  func(r *Reader) Command { return &Unsubscribe{r.mailbox()} },
	"LIST":         (*Reader).listMailboxes,
	"LSUB":         (*Reader).lsub,
	"STATUS":       (*Reader).status,
	"APPEND":       (*Reader).append,
	"ENABLE":       (*Reader).enable,
	"ID":           (*Reader).id,
	"COMPRESS":     func(r *Reader) Command { return &Compress{r.nonEmptyWord()} },
	"GETQUOTA":     func(r *Reader) Command { return &GetQuota{r.astring()} },
	"GETQUOTAROOT": func(r *Reader) Command { return &GetQuotaRoot{r.mailbox()} },
	"SETQUOTA":     (*Reader).setQuota,
}

// messageParsers read the arguments of commands that have a UID form.
var messageParsers = map[string]func(r *Reader, uid bool) Command{
	"FETCH":   (*Reader).fetch,
	"STORE":   (*Reader).store,
	"SEARCH":  (*Reader).search,
	"COPY":    (*Reader).copy,
	"MOVE":    (*Reader).move,
	"SORT":    (*Reader).sort,
	"THREAD":  (*Reader).thread,
	"REPLACE": (*Reader).replace,
}

// command takes what follows the tag.
func (r *Reader) command() Command {
	r.sp()
	name := r.word()
	if string(name) == "UID" {
		r.sp()
		return r.uidCommand(r.word())
	}
	if simple := simpleCommands[string(name)]; simple != nil {
		return simple()
	}
	if parse := argumentParsers[string(name)]; parse != nil {
		r.sp()
		return parse(r)
	}
	parse := messageParsers[string(name)]
	if parse == nil {
		fail(bad("There is no such command."))
	}
	r.sp()
	return parse(r, false)
}

// uidCommand takes the command after UID.
func (r *Reader) uidCommand(name []byte) Command {
	if string(name) == "EXPUNGE" {
		r.sp()
		return &Expunge{r.numSet(true)}
	}
	parse := messageParsers[string(name)]
	if parse == nil {
		fail(bad("There is no such UID command."))
	}
	r.sp()
	return parse(r, true)
}

// uidName returns the name of a command in its plain or UID form.
func uidName(uid bool, name string) string {
	if uid {
		return "UID " + name
	}
	return name
}
