/** An error as a page for people: no script, nothing loaded from elsewhere, dark or light like the reader's system. */
import { createHash } from 'node:crypto'
import type { ErrorCode, ErrorSource } from '../base/errors.ts'

const STYLE = `:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1.5rem;color:#1a1a1a;background:#fff}
h1{font-size:1.4rem}
code{font-family:ui-monospace,monospace;overflow-wrap:anywhere}
p.small{color:#595959;font-size:.9rem}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}p.small{color:#a3a3a3}}`

/** Fields of an answer whose body is a {@link problemPage}. */
export const PAGE_HEADERS: readonly string[] = [
  ...['content-type', 'text/html; charset=utf-8'],
  'content-security-policy',
  `default-src 'none'; style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  ...['x-content-type-options', 'nosniff', 'referrer-policy', 'no-referrer'],
]

const WHERE: Readonly<Record<ErrorSource, string>> = {
  downstream: 'The request itself is the cause, or may not pass here.',
  tunnel: 'The tunnel to the service is the cause.',
  upstream: 'The service behind the tunnel is the cause. The tunnel itself works.',
  internal: 'The tunnel is the cause.',
}

/** Says what failed, where the cause lies, and whether to try again. Operators of the service can find the id in the log. */
export function problemPage(
  code: ErrorCode,
  row: { readonly status: number; readonly source: ErrorSource; readonly retryable: boolean; readonly title: string },
  requestId: string,
): string {
  const again = row.retryable ? ' Try again in a moment.' : ''
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${row.status} ${code}</title><style>${STYLE}</style>
<h1>${row.title}</h1>
<p>${WHERE[row.source]}${again}</p>
<p class="small">${row.status} <code>${code}</code><br>Request <code>${escapeHtml(requestId)}</code></p>
</html>
`
}

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, character => `&#${character.charCodeAt(0)};`)
}

/** Browsers send about 140 characters. A longer field is not parsed, since its commas would cost more than its request. */
const MAX_ACCEPT = 256

/** Whether the sender of this `Accept` is a browser that displays a page: it names HTML, and no JSON before it. */
export function prefersPage(accept: string | undefined): boolean {
  if (accept === undefined || accept.length > MAX_ACCEPT || !/text\/html/i.test(accept)) return false
  const html = weightOf(accept, /^text\/html$/i)
  return html > 0 && html > weightOf(accept, /^application\/(?:problem\+)?json$/i)
}

/** The highest `q` (RFC 9110, section 12.4.2) of the types that are named explicitly, or 0 if there is none. */
function weightOf(accept: string, type: RegExp): number {
  let highest = 0
  for (const range of accept.split(',')) {
    const [name = '', ...parameters] = range.split(';').map(part => part.trim())
    if (!type.test(name)) continue
    const q = parameters.find(parameter => /^q=/i.test(parameter))
    highest = Math.max(highest, q === undefined ? 1 : Number(q.slice(2)) || 0)
  }
  return highest
}
