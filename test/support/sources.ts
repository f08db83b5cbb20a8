/** Preloaded into a program that imports `sallyport/...`: gives it the sources of this checkout in place of a build. */
import { registerHooks } from 'node:module'

const ROOT = new URL('../../', import.meta.url)

registerHooks({
  resolve(specifier, context, nextResolve) {
    const folder = /^sallyport\/([a-z]+)$/.exec(specifier)?.[1]
    return nextResolve(folder === undefined ? specifier : new URL(`${folder}/index.ts`, ROOT).href, context)
  },
})
