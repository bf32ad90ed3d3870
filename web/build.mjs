// SPDX-License-Identifier: Apache-2.0
// Builds the page: bundles src/main.js with esbuild, puts style, script and licences of what is
// bundled into src/index.html, and computes the policy that lets exactly those run. Writes
// page.html and data.h in src/serve/page of the repository; with --check it writes nothing and fails
// when they differ from what it would write. Packages come from build/web (npm run setup).
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const web = path.dirname(fileURLToPath(import.meta.url));
const root = path.dirname(web);
const packages = path.join(root, "build", "web");
const modules = path.join(packages, "node_modules");
const out = path.join(root, "src", "serve", "page");

// npm installs beside the lock file it reads; a copy in build/web keeps this folder clean.
function setup() {
    mkdirSync(packages, { recursive: true });
    for (const name of ["package.json", "package-lock.json"])
        copyFileSync(path.join(web, name), path.join(packages, name));
    execFileSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        { cwd: packages, stdio: "inherit" });
}

const read = (...parts) => readFileSync(path.join(...parts), "utf8");
const hash = (text) => "'sha256-" + createHash("sha256").update(text).digest("base64") + "'";

// Licences of the packages that the bundle really contains, as the page's about box shows them.
function licences(inputs) {
    const names = new Set();
    for (const input of Object.keys(inputs)) {
        const match = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
        if (match) names.add(match[1]);
    }
    return [...names].sort().map((name) => {
        const { version, license } = JSON.parse(read(modules, name, "package.json"));
        const file = ["LICENSE", "LICENSE.md", "LICENSE.txt", "LICENSE-MIT.txt", "license"]
            .find((one) => existsSync(path.join(modules, name, one)));
        if (!file) throw new Error(`${name} has no licence file`);
        return { name, version, license, text: read(modules, name, file).trim() };
    });
}

async function bundle(esbuild) {
    const common = { bundle: true, minify: true, write: false, charset: "utf8",
        target: ["es2022"], legalComments: "none", nodePaths: [modules], absWorkingDir: root };
    const script = await esbuild.build({ ...common, entryPoints: ["web/src/main.js"],
        format: "iife", metafile: true });
    const style = await esbuild.build({ ...common, entryPoints: ["web/src/style.css"] });
    return {
        script: script.outputFiles[0].text.trim().replaceAll("</script", "<\\/script"),
        style: style.outputFiles[0].text.trim(),
        licences: licences(script.metafile.inputs),
    };
}

async function build() {
    const esbuild = createRequire(path.join(packages, "package.json"))("esbuild");
    const parts = await bundle(esbuild);
    const policy = ["default-src 'none'", `script-src ${hash(parts.script)}`,
        `style-src ${hash(parts.style)}`, "img-src data:", "connect-src 'self'", "base-uri 'none'",
        "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types page"].join("; ");
    const notices = JSON.stringify(parts.licences).replaceAll("<", "\\u003c");
    const html = read(web, "src", "index.html")
        .replace("%POLICY%", () => policy)
        .replace("/*STYLE*/", () => parts.style)
        .replace("/*LICENCES*/", () => notices)
        .replace("/*SCRIPT*/", () => parts.script);
    const etag = createHash("sha256").update(html).digest("hex").slice(0, 32);
    // frame-ancestors counts in a header only.
    const data = `// SPDX-License-Identifier: Apache-2.0
// Headers that go with page.html; web/build.mjs writes both.
#ifndef COPPICE_SERVE_PAGE_DATA_H
#define COPPICE_SERVE_PAGE_DATA_H

#define PAGE_ETAG "\\"${etag}\\""
// clang-format off
#define PAGE_POLICY \\
${[...policy.split("; "), "frame-ancestors 'none'"]
        .map((one, i, all) => `    "${one}${i + 1 < all.length ? "; " : ""}"`).join(" \\\n")}
// clang-format on

#endif
`;
    return { "page.html": html, "data.h": data };
}

if (process.argv.includes("--setup")) {
    setup();
} else {
    const files = await build();
    const stale = Object.keys(files).filter((name) => !existsSync(path.join(out, name)) ||
        read(out, name) !== files[name]);
    if (process.argv.includes("--check")) {
        if (stale.length > 0) {
            console.error(`web: ${stale.map((name) => "src/serve/page/" + name).join(" and ")} ` +
                "differs from a fresh build; run: npm run --prefix web build");
            process.exit(1);
        }
        console.log("web: the page in the tree is a fresh build");
    } else {
        for (const name of stale) writeFileSync(path.join(out, name), files[name]);
        console.log(`web: page.html has ${files["page.html"].length} characters` +
            (stale.length > 0 ? "" : ", unchanged"));
    }
}
