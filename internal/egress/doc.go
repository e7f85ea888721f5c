// Package egress is the one door through which Hob reaches the network.
//
// Tools, hooks, MCP servers, outgoing webhooks and imports call [Guard.Do]: one
// bounded exchange with a destination that was judged first. Model providers
// and other addresses the operator wrote down get a streaming client from
// [Guard.OperatorClient]; one for an address that a user wrote down comes from
// [Guard.UserClient] and is judged like a tool's. Nothing else in the module may open a connection; a
// test of this package fails when something does.
//
// # How a destination is judged
//
// Models and the content they read choose URLs, so a URL is hostile input. It
// is parsed once and made canonical ([Guard.CheckURL] tells what is refused).
// The name is then resolved once, every answer is judged, and one forbidden
// answer condemns the name: a name that mixes public and private answers, or
// changes its answers between look-ups, gains nothing. Only a judged address is
// dialled, and the socket's control hook judges the address again just before
// the connect call. Redirects start over from zero.
//
// An address is allowed when it is public and its port is 80 or 443 (or named
// by [Request.AllowedHosts]), or when an entry of the operator's list
// (HOB_EGRESS_ALLOW, [ParseAllow]) covers exactly this address and port. Hob's
// own listeners, multicast, broadcast, the unspecified address and addresses
// with a zone are never reachable, whatever the list says.
//
// # What a refusal tells
//
// A forbidden destination and an unreachable one give the same text, and a
// forbidden one is never dialled, so neither answer nor time tells a model
// whether something listens on a private address. Operators learn more from
// [Config.Refused] and [Error.Detail].
//
// The package is not a general HTTP client: it keeps no cookies, follows no
// environment proxy, retries only what net/http repeats when a kept connection
// turns out to be closed, and knows nothing of agents, grants or audit rows.
package egress
