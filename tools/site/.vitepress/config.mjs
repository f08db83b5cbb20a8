// The documents of this checkout as pages, with a search that works offline. `npm run docs:site` writes dist/.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = dirname(dirname(fileURLToPath(import.meta.url)))
const root = resolve(here, '../..')

const page = (text, link) => ({ text, link })

const sidebar = [
  {
    text: 'Begin',
    items: [
      page('First steps', '/readme'),
      page('Questions', '/docs/faq'),
      page('The words', '/docs/glossary'),
      page('Coming from frp, ngrok, cloudflared', '/docs/migrating'),
      page('Behind a corporate proxy', '/docs/corporate-proxy'),
      page('Windows', '/docs/windows'),
      page('Out of scope', '/docs/out-of-scope'),
    ],
  },
  {
    text: 'Install',
    items: [
      page('systemd', '/deploy/systemd/'),
      page('Compose', '/deploy/compose/'),
      page('Helm chart', '/deploy/helm/sallyport/'),
      page('Behind an ingress', '/docs/ingress'),
      page('Many replicas', '/docs/scaling'),
      page('Hosts of their own', '/docs/hosts'),
      page('Keys and certificates', '/docs/keys'),
      page('Upgrading', '/docs/upgrading'),
    ],
  },
  {
    text: 'Use',
    items: [
      page('Routes', '/docs/routes'),
      page('Webhooks', '/docs/webhooks'),
      page('The inbox', '/docs/inbox'),
      page('The inspector', '/docs/inspector'),
      page('The page', '/docs/page'),
      page('Who may call', '/docs/access'),
      page('Configuration', '/docs/configuration'),
    ],
  },
  {
    text: 'Operate',
    items: [
      page('Operations', '/docs/operations'),
      page('Check', '/docs/check'),
      page('Diag', '/docs/diag'),
      page('Errors', '/docs/errors'),
      page('Running an inbox', '/docs/inbox-operations'),
      page('Monitoring', '/docs/monitoring'),
      page('Runbooks', '/docs/runbooks'),
      page('Metrics', '/docs/metrics'),
      page('Fields of /status and of the log', '/docs/fields'),
      page('Traces', '/docs/tracing'),
      page('Tuning', '/docs/tuning'),
      page('Performance', '/docs/performance'),
      page('Security', '/docs/security'),
    ],
  },
  {
    text: 'Embed',
    items: [page('Examples', '/examples/'), page('API reference', '/docs/api/')],
  },
  {
    text: 'Inside',
    collapsed: true,
    items: [
      page('Life of a request', '/docs/life-of-a-request'),
      page('The wire', '/protocol/wire/SPEC'),
      page('Decisions', '/docs/decisions/'),
      page('Contributing', '/CONTRIBUTING'),
      page('Changelog', '/CHANGELOG'),
    ],
  },
]

export default {
  title: 'Sallyport',
  description: 'A secure reverse tunnel for HTTP',
  lang: 'en',
  srcDir: join(here, 'pages'),
  rewrites: pathOf,
  outDir: join(here, 'dist'),
  cacheDir: join(here, 'node_modules/.cache/vitepress'),
  markdown: {
    // As GitHub names headings, so that links hold in both places.
    anchor: {
      slugify: heading =>
        heading
          .trim()
          .toLowerCase()
          .replace(/[^\p{L}\p{N}\s_-]/gu, '')
          .replace(/\s/g, '-'),
    },
    config: markdown => markdown.core.ruler.push('files', mend),
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      page('Start', '/readme'),
      page('Questions', '/docs/faq'),
      page('Operations', '/docs/operations'),
      page('API', '/docs/api/'),
    ],
    sidebar: [...sidebar, ...unlisted()],
  },
}

/** Documents that have no entry yet are found all the same, by their headings. */
function unlisted() {
  const links = new Set(sidebar.flatMap(({ items }) => items.map(({ link }) => link)))
  const rest = readdirSync(join(root, 'docs')).filter(
    name => name.endsWith('.md') && !links.has(`/docs/${name.slice(0, -3)}`),
  )
  const items = rest.map(name =>
    page(/^# (.*)$/m.exec(readFileSync(join(root, 'docs', name), 'utf8'))[1], `/docs/${name.slice(0, -3)}`),
  )
  return items.length === 0 ? [] : [{ text: 'More', items }]
}

/** Where a page is on the site: a README is what its folder shows. */
function pathOf(file) {
  return file === 'README.md' ? 'readme.md' : file.replace(/README\.md$/, 'index.md')
}

/** Links to a README lead to its page. One to another file or a folder of the checkout becomes its text, which names it. */
function mend(state) {
  const folder = dirname(join(root, state.env.relativePath ?? ''))
  for (const block of state.tokens) {
    const { children } = block
    // What is indented looks and is copied as what is fenced; no highlighter knows hex.
    if (block.type === 'code_block') Object.assign(block, { type: 'fence', info: '', markup: '```' })
    if (block.info === 'hex') block.info = ''
    let open = false
    for (const token of children ?? []) {
      if (token.type === 'link_open') {
        const href = decodeURI(token.attrGet('href') ?? '')
        const path = href.split('#')[0]
        open = isFile(path, folder)
        if (path.endsWith('README.md'))
          token.attrSet('href', href.replace(/README\.md/, basename(pathOf(relative(root, resolve(folder, path))))))
        if (open) Object.assign(token, { type: 'em_open', tag: 'span', attrs: [] })
      } else if (token.type === 'link_close' && open) {
        Object.assign(token, { type: 'em_close', tag: 'span' })
        open = false
      }
    }
  }
}

function isFile(path, folder) {
  if (path === '' || /^[a-z]+:/.test(path) || /\.(?:md|html)$/.test(path) || path.startsWith('/')) return false
  const target = resolve(folder, path)
  return existsSync(target) && !relative(root, target).startsWith('..')
}
