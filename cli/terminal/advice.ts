import type { ErrorCode } from '../../protocol/base/errors.ts'

/** What a person at the terminal can do about a failure, if anything. */
export const ADVICE: Partial<Record<ErrorCode, string>> = {
  'unknown-host': 'Callers use <runtime>.<domain>; --domain says which domain.',
  'runtime-offline': "Its client is not connected: the client's own log says why.",
  'no-route': '`sallyport route test URL` says which route takes a request, or why none does.',
  'caller-not-allowed': 'The runtime names who may call it (--allow.callers), or the route does (allow.callers).',
  'upstream-refused': 'Nothing listens at the target: start the service, or give another target.',
  'upstream-name': 'The name of the target does not resolve here: correct it, or the DNS.',
  'upstream-tls':
    'Trust the authority of the target with tls.ca of its route, or dial it by a name in its certificate.',
  'upstream-broken': 'The target ended the connection or did not speak HTTP: its own log may say why.',
  'upstream-timeout': 'The target is slow or hangs: its own log may say why.',
  'session-lost': 'The client lost its session meanwhile: its own log says why.',
  'webhook-signature': 'The secret of the route and that of the sender differ; `sallyport webhook send` tries one.',
  'inbox-full': '`sallyport inbox list` shows what fills the inbox.',
  'inbox-sealed': 'All clients of a runtime need the same --inbox.key.file.',
  'loop-detected': 'The target leads back to this tunnel: give another one.',
}
