/**
 * CORS policies of routes. A tunnel client publishes them to the server in its `hello`. Whatever `hello` cannot carry is refused
 * here, where file and line are known.
 */
import { Buffer } from 'node:buffer'
import type { CorsPolicy } from '../protocol/http/problem.ts'
import { CORS_LIMITS, isWord } from '../protocol/wire/control.ts'
import type { ReportProblem } from './compile.ts'
import type { Route } from './table.ts'

/** Never throws. Each problem goes to `report`. */
export function compileCors(route: Route, report: ReportProblem): CorsPolicy | undefined {
  const cors = route.cors
  if (cors === undefined) return undefined
  cors.origins.forEach((origin, i) => {
    const plain = origin === '*' || /^[a-z][a-z0-9+.-]*:\/\/[^/?#\s*]+$/.test(origin)
    if (!plain) report(['cors', 'origins', i], 'must be an origin such as https://ui.example.com, without a path')
  })
  if (cors.credentials === true && cors.origins.includes('*')) {
    report(['cors', 'origins'], 'with credentials, the origins must be listed one by one')
  }
  const { origins, methods, headers, maxAge } = CORS_LIMITS
  checkWords('origins', cors.origins, origins, report)
  checkWords('methods', cors.methods, methods, report)
  checkWords('headers', cors.headers, headers, report)
  checkWords('exposeHeaders', cors.exposeHeaders, headers, report)
  if (cors.maxAge !== undefined && cors.maxAge > maxAge) report(['cors', 'maxAge'], `must be at most ${maxAge} (a day)`)
  if (!isWord(publishedPath(route))) report(['match', 'path'], `with cors, at most ${CORS_LIMITS.wordChars} characters`)
  return cors
}

function checkWords(name: string, words: readonly string[] = [], most: number, report: ReportProblem): void {
  if (words.length > most) report(['cors', name], `at most ${most} of them`)
  words.forEach((word, i) => {
    if (!isWord(word))
      report(['cors', name, i], `must be 1 to ${CORS_LIMITS.wordChars} ASCII characters, without spaces`)
  })
}

/** The path before its first capture. A published rule applies to all paths below it. */
function publishedPath({ match }: Route): string {
  const path = match.path ?? '/'
  const capture = path.indexOf('/{')
  return capture === -1 ? path : path.slice(0, Math.max(1, capture))
}

/** The CORS rules that a client with these routes publishes. */
export function publishedRules(routes: readonly Route[]): { path: string; cors: CorsPolicy }[] {
  return routes.flatMap(route => (route.cors === undefined ? [] : [{ path: publishedPath(route), cors: route.cors }]))
}

/** Reports the first rule that exceeds the limit on the number or the total length of rules. */
export function checkPublished(routes: readonly Route[], report: ReportProblem): void {
  let rules = 0
  let bytes = 0
  for (const [i, route] of routes.entries()) {
    const [rule] = publishedRules([route])
    if (rule === undefined) continue
    rules++
    bytes += Buffer.byteLength(JSON.stringify({ path: rule.path, ...rule.cors })) + 1
    if (rules <= CORS_LIMITS.rules && bytes <= CORS_LIMITS.bytes) continue
    const most = rules > CORS_LIMITS.rules ? `${CORS_LIMITS.rules} routes` : `${CORS_LIMITS.bytes} bytes as JSON`
    report(['routes', i, 'cors'], `the server accepts cors of at most ${most}`)
    return
  }
}
