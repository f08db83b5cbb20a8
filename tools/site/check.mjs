// Every link of the pages in dist/ leads to a page that is there, and to a heading of it.
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const dist = join(dirname(fileURLToPath(import.meta.url)), 'dist')
const pages = globSync('**/*.html', { cwd: dist })
const ids = new Map(pages.map(page => [page, idsIn(readFileSync(join(dist, page), 'utf8'))]))
const broken = pages.flatMap(page =>
  linksIn(page)
    .filter(([path, id]) => !leads(path, id))
    .map(([path, id]) => `${page}: ${path}#${id}`),
)

for (const link of new Set(broken)) console.error(link)
console.log(`${pages.length} pages, ${broken.length} broken links`)
process.exitCode = broken.length === 0 ? 0 : 1

function idsIn(html) {
  return new Set([...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id))
}

/** Path below dist/ and heading of each link that leads to the site itself. */
function linksIn(page) {
  const html = readFileSync(join(dist, page), 'utf8')
  const hrefs = [...html.matchAll(/<a [^>]*?href="([^"]*)"/g)].map(([, href]) => href.replaceAll('&amp;', '&'))
  return hrefs
    .filter(href => !/^[a-z]+:/.test(href))
    .map(href => {
      const url = new URL(href, `http://site/${page}`)
      const path = relative('/', decodeURIComponent(url.pathname)) + (url.pathname.endsWith('/') ? '/' : '')
      return [path === '/' ? '' : path, decodeURIComponent(url.hash.slice(1))]
    })
}

function leads(path, id) {
  const page = path === '' || path.endsWith('/') ? `${path}index.html` : path
  if (!page.endsWith('.html')) return existsSync(join(dist, page))
  return ids.has(page) && (id === '' || ids.get(page).has(id))
}
