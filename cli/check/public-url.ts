import type { Probe } from '../../protocol/base/probe.ts'
import type { ServerConfig } from '../config/server.ts'

/** Checks that the URL that clients are told leads to a domain of the server. */
export function probePublicUrl({ 'public.url': url, domain = [] }: ServerConfig): Probe[] {
  if (url === undefined) return []
  const about = { code: 'public-url', what: `--public.url ${url}`, expected: `under ${domain.join(' or ')}` }
  const name = new URL(url.replace('*.', '')).hostname
  if (domain.some(one => one.toLowerCase() === name)) return [{ ...about, status: 'ok', found: name, hint: '' }]
  const hint = 'Callers of that URL get 404, unless a proxy replaces Host: correct it, or add the --domain.'
  return [{ ...about, status: 'warn', found: `${name} is no --domain`, hint }]
}
