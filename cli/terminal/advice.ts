import type { ErrorCode } from '../../protocol/base/errors.ts'

/** What the person at the terminal can do about a failure, if anything. */
export const ADVICE: Partial<Record<ErrorCode, string>> = {
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
  'webhook-signature': 'The secrets of the route and the sender differ. Test one with `sallyport webhook send`.',
  'inbox-full': '`sallyport inbox list` shows what fills the inbox.',
  'inbox-sealed': 'All clients of a runtime need the same --inbox.key.file.',
  'loop-detected': 'The target leads back to this tunnel: give another one.',
}
