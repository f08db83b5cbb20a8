import type { ErrorCode } from '../../protocol/base/errors.ts'

/** What the person at the terminal can do about a failure. Nothing can be done about a caller who has gone. */
export const ADVICE: Readonly<Record<Exclude<ErrorCode, 'cancelled'>, string>> = {
  'unknown-host': 'Callers use <runtime>.<domain>, with the domain of --domain.',
  'runtime-offline': "Its client is not connected: the client's own log says why.",
  'no-route': '`sallyport route test URL` shows which route matches a request, or why none does.',
  'caller-not-allowed': 'The runtime (--allow.callers) or the route (allow.callers) restricts who may call.',
  'upstream-refused': 'Nothing is listening at the target: start the service, or give another target.',
  'upstream-name': 'The name of the target does not resolve here: correct it, or fix the DNS.',
  'upstream-tls':
    'Trust the authority of the target with tls.ca of its route, or dial it by a name in its certificate.',
  'upstream-broken': 'The target closed the connection or did not speak HTTP. Its own log may say why.',
  'upstream-timeout': 'The target is slow or hangs. Its own log may say why.',
  'session-lost': 'The client lost its session meanwhile. Its own log says why.',
  'shutting-down': 'It outlasted --grace of a server or router that was stopping.',
  overloaded: 'A limit has been reached (--limits.*, --hold.*): `sallyport status` shows what is in use.',
  'webhook-signature': 'The secrets of the route and the sender differ. Test one with `sallyport webhook send`.',
  'inbox-full': '`sallyport inbox list` shows what fills the inbox.',
  'inbox-away': "The store of the inbox cannot be reached: the server's log says why.",
  'inbox-sealed': 'All clients of a runtime need the same --inbox.key.file.',
  internal: 'This is a defect of Sallyport. `sallyport diag` collects what a report of it needs.',
  'bad-request': 'What the caller sent is not valid HTTP.',
  'uri-too-long': 'The caller must send a shorter path and query.',
  'head-too-large': 'The caller must send fewer or shorter header fields. Cookies often are the reason.',
  'body-too-large':
    'The route limits bodies with limits.bodyBytes. A webhook whose signature is checked may have at most 25 MiB.',
  'request-timeout': 'The caller, or the network to it, was too slow to send the request or to read the response.',
  'not-authenticated': 'The caller lacks a valid credential for --access.* of the server.',
  'access-unavailable': "Neither allowed nor refused: the server's log says why callers cannot be checked.",
  'too-many-requests':
    '--limits.*-rate-per-runtime or -per-address was exceeded, or unknown host names were called too often.',
  'method-not-allowed': 'match.methods of the route leaves this method out. CONNECT and TRACE never pass.',
  'not-implemented': 'The caller uses a transfer coding other than chunked.',
  misdirected: 'The caller used a connection to one name for a request to another.',
  'loop-detected': 'The target leads back to this tunnel: give another one.',
}

/** The page also lists callers that left before an answer. */
export const PAGE_ADVICE: Readonly<Record<ErrorCode, string>> = {
  ...ADVICE,
  cancelled:
    'It left before an answer began. Senders of webhooks often wait for only 10 s: a slow target should answer first, and then work.',
}
