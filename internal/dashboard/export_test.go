// SPDX-License-Identifier: Apache-2.0

package dashboard

import "maps"

// Routes lists all routes, once there is a Handler.
func (d *Dashboard) Routes() []Route { return d.routeList }

// Unfriend makes nobody a friend.
func (d *Dashboard) Unfriend() { d.Users.Logins.Exempt, d.authLimiter.Exempt = nil, nil }

// Unaudited are the forms without an entry of the audit log, and why.
func Unaudited() map[string]string { return maps.Clone(unauditedForms) }
