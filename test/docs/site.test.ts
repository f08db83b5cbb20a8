/** The site's table of contents against the documents; `npm run docs:site` builds the pages and checks all links. */
import { existsSync, globSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

interface Item {
  readonly link?: string
  readonly items?: readonly Item[]
}

const config = '../../tools/site/.vitepress/config.mjs'
const { default: site } = (await import(config)) as { default: { themeConfig: { sidebar: Item[]; nav: Item[] } } }
const linksOf = (items: readonly Item[]): string[] =>
  items.flatMap(({ link, items = [] }) => [...(link === undefined ? [] : [link]), ...linksOf(items)])
const listed = linksOf(site.themeConfig.sidebar)

/** The document behind a link of the site. */
function fileOf(link: string): string {
  if (link === '/readme') return 'README.md'
  return link.endsWith('/') ? `${link.slice(1)}README.md` : `${link.slice(1)}.md`
}

test('each entry is a document', () => {
  const all = [...listed, ...linksOf(site.themeConfig.nav)]
  expect(all.map(fileOf).filter(file => !existsSync(file))).toEqual([])
})

test('each page of docs/ has an entry', () => {
  const pages = globSync('docs/*.md').map(file => file.replaceAll('\\', '/'))
  expect(pages.filter(page => !listed.map(fileOf).includes(page))).toEqual([])
})

test('the lockfile has the packages of every platform; otherwise npm ci refuses it', () => {
  const { packages } = JSON.parse(readFileSync('tools/site/package-lock.json', 'utf8')) as {
    packages: Record<string, { optionalDependencies?: object }>
  }
  const named = Object.values(packages).flatMap(({ optionalDependencies = {} }) => Object.keys(optionalDependencies))
  expect(named.filter(name => packages[`node_modules/${name}`] === undefined)).toEqual([])
})
