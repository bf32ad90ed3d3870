# SPDX-License-Identifier: Apache-2.0
"""Text for the tokenizer fixtures: training text and hostile test strings.

Owns every sentence and generator used by tokenizer_fixtures.py. All text is written for this
project; nothing comes from a corpus. Everything is seeded, so two runs give the same bytes.
Does no tokenising.
"""
import random
import unicodedata

SENTENCES = [
    "The quick answer is that the river runs past the old mill and into the sea.",
    "I'll say it again: don't touch what you've not measured, it's not worth it.",
    "We're sure they'd come, I'm sure you've seen it, and he'll say it's theirs.",
    "Der Fluss fließt durch die grüne Ebene, während Vögel über den Äckern kreisen.",
    "La forêt s'étend jusqu'à la mer; l'été, les élèves y cherchent des fougères.",
    "El niño pequeño corría por la montaña mientras el señor leía su periódico.",
    "A manhã começou fria, porém as crianças não quiseram esperar pelo café.",
    "Il vento è cambiato, perciò la nave partirà domani verso l'isola più lontana.",
    "Zażółcona łąka szumi, a źrebię pije wodę ze studni.",
    "Příliš žluté květiny rostou vedle řeky, kde žijí ďáblíci.",
    "Çocuklar ırmağın kıyısında oynarken İstanbul'dan gelen gemiyi gördüler.",
    "Cô gái Việt Nam đi chợ sớm để mua một ít rau và hoa quả tươi.",
    "Быстрая река течёт мимо старой мельницы и впадает в холодное море.",
    "Їжак сидить під яблунею, а ґава дивиться на нього з гілки.",
    "Ο γρήγορος ποταμός κυλά δίπλα στον παλιό μύλο και χύνεται στη θάλασσα.",
    "הנהר המהיר זורם ליד הטחנה הישנה אל הים הגדול.",
    "يجري النهر السريع بجانب الطاحونة القديمة ويصب في البحر الكبير.",
    "رودخانهٔ تند از کنار آسیاب کهنه می‌گذرد و به دریا می‌ریزد.",
    "तेज़ नदी पुरानी चक्की के पास से बहती है और समुद्र में मिल जाती है।",
    "দ্রুত নদী পুরানো কলের পাশ দিয়ে বয়ে সমুদ্রে মেশে।",
    "வேகமான ஆறு பழைய ஆலையைக் கடந்து கடலில் கலக்கிறது.",
    "వేగమైన నది పాత మిల్లు పక్కన ప్రవహించి సముద్రంలో కలుస్తుంది.",
    "แม่น้ำไหลเร็วผ่านโรงสีเก่าแล้วลงสู่ทะเล",
    "ნაკადი ჩქარა მიედინება ძველ წისქვილთან და ზღვას უერთდება.",
    "Արագ գետը հոսում է հին ջրաղացի մոտով դեպի ծով։",
    "ወንዙ በፍጥነት ከድሮው ወፍጮ አጠገብ ወደ ባሕር ይፈሳል።",
    "河水很快地流过旧磨坊，最后流入大海。孩子们在岸边玩耍。",
    "河水很快地流過舊磨坊，最後流入大海。孩子們在岸邊玩耍。",
    "速い川は古い水車小屋のそばを流れて、海に注いでいます。カタカナも書く。",
    "빠른 강물은 낡은 물레방아를 지나 바다로 흘러갑니다.",
    "x = 3.14159; y = x * 2 + 17 - f(10, 200) / 4096",
    "for (int i = 0; i < n; i++) { sum += a[i] * b[i]; }",
    "def walk(tree, choices):\n    node = 0\n    while node >= 0:\n        node = tree.child(node, choices[node])\n",
    "if (x == NULL) {\n\treturn -1;\n}\n\n",
    "{\"name\": \"value\", \"list\": [1, 2, 3], \"flag\": true}\n",
    "#include <stdio.h>\n#include <stdint.h>\n\nint main(void)\n{\n    return 0;\n}\n",
    "https://example.org/path/to/page?query=1&other=two#part",
    "👍 👩‍👩‍👧‍👦 🇩🇪 🏳️‍🌈 ❤️ ✨ 🎉",
]

# Ranges of letters from which words are drawn, one row a script.
SCRIPTS = [
    (0x0061, 0x007A), (0x00C0, 0x00FF), (0x0100, 0x017F), (0x0250, 0x02AF), (0x0391, 0x03C9),
    (0x0410, 0x044F), (0x0531, 0x0556), (0x05D0, 0x05EA), (0x0621, 0x064A), (0x0710, 0x072C),
    (0x0780, 0x07A5), (0x0905, 0x0939), (0x0985, 0x0989), (0x0A05, 0x0A0A), (0x0A95, 0x0AA8),
    (0x0B15, 0x0B28), (0x0B8E, 0x0B90), (0x0C15, 0x0C28), (0x0C95, 0x0CA8), (0x0D15, 0x0D28),
    (0x0D9A, 0x0DB1), (0x0E01, 0x0E30), (0x0E81, 0x0E84), (0x0F40, 0x0F47), (0x1000, 0x1021),
    (0x10D0, 0x10F0), (0x1100, 0x1112), (0x1200, 0x1248), (0x13A0, 0x13F5), (0x1401, 0x1500),
    (0x16A0, 0x16EA), (0x1780, 0x17A2), (0x1820, 0x1842), (0x1E00, 0x1EFF), (0x1F00, 0x1F15),
    (0x2C80, 0x2CB0), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x3105, 0x312F), (0x3400, 0x3500),
    (0x4E00, 0x4FFF), (0x9F00, 0x9FA5), (0xA000, 0xA0FF), (0xAC00, 0xAE00), (0xFB00, 0xFB06),
    (0xFF21, 0xFF5A), (0x10330, 0x1034A), (0x10400, 0x1044F), (0x12000, 0x12100),
    (0x13000, 0x13100), (0x1D400, 0x1D454), (0x1E900, 0x1E943), (0x20000, 0x20100),
]

DIGIT_STARTS = [0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0BE6, 0x0E50, 0x0F20,
                0x1040, 0x17E0, 0x1810, 0xFF10, 0x104A0, 0x1D7CE]

# The spaces of Unicode. U+180E is left out: regex engines differ about it.
SPACES = " \t\u00a0\u1680\u2000\u2001\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u0085\v\f"

# Special tokens of the fixture: (text, control?). Some overlap: "=>" begins earlier than the
# longer ">===", "<br>" is a prefix of "<br><br>", and one holds a raw accented letter.
SPECIALS = [
    ("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<|mask|>", True),
    ("<think>", False), ("</think>", False), ("<tool_call>", False), ("</tool_call>", False),
    ("<br>", False), ("<br><br>", False), ("=>", False), (">===", False), ("«é»", False),
]


def _word(rng, lo, hi, n):
    letters = [chr(c) for c in range(lo, hi + 1) if unicodedata.category(chr(c))[0] == "L"]
    return "".join(rng.choice(letters) for _ in range(n))


def training_text():
    """Lines for the BPE trainer: sentences repeated, plus words of every script."""
    rng = random.Random(20261121)
    out = []
    for rep in range(6):
        for s in SENTENCES:
            out.append(s if rep % 2 == 0 else s.upper() if rep == 1 else s + "\n" + "  " * rep)
            words = s.split(" ")
            rng.shuffle(words)
            out.append(" ".join(words))
    for lo, hi in SCRIPTS:
        lexicon = [_word(rng, lo, hi, rng.randint(1, 4)) for _ in range(8)]
        out.append(" ".join(rng.choice(lexicon) for _ in range(80)))
    out.append("\n\n\n\n" * 20 + " " * 64 + "\t\t\t\t" * 10 + "----====####" * 20)
    return out


def _mixed(rng):
    """One random string: pieces of every kind glued without regard for sense."""
    kinds = []
    for _ in range(rng.randint(2, 14)):
        k = rng.randrange(14)
        if k < 4:
            lo, hi = rng.choice(SCRIPTS)
            kinds.append(_word(rng, lo, hi, rng.randint(1, 7)))
        elif k == 4:
            d = rng.choice(DIGIT_STARTS)
            kinds.append("".join(chr(d + rng.randrange(10)) for _ in range(rng.randint(1, 6))))
        elif k == 5:
            kinds.append("".join(rng.choice(SPACES) for _ in range(rng.randint(1, 5))))
        elif k == 6:
            kinds.append(rng.choice(["\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\t\n\t", "\n\r"]))
        elif k == 7:
            kinds.append("".join(chr(rng.randrange(0x300, 0x36F)) for _ in range(rng.randint(1, 4))))
        elif k == 8:
            kinds.append("".join(rng.choice("!?.,;:()[]{}<>=+-*/%&|^~#@$_\\`\"'")
                                 for _ in range(rng.randint(1, 6))))
        elif k == 9:
            kinds.append(rng.choice(["'s", "'T", "'re", "'VE", "'m", "'ll", "'D", "\u2019s",
                                     "'\u017f", "'\u017fx", "'lx", "'r", "''s"]))
        elif k == 10:
            kinds.append(rng.choice(["👍🏽", "👩‍💻", "🇫🇷🇩🇪", "❤️‍🔥", "☝", "1️⃣", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "©", "½", "Ⅷ", "²"]))
        elif k == 11:
            kinds.append(" " * rng.randint(1, 9))
        elif k == 12:
            kinds.append(rng.choice([s for s, _ in SPECIALS]))
        else:
            kinds.append(chr(rng.choice([0x00, 0x01, 0x1B, 0x7F, 0x80, 0x9F, 0xAD, 0x200B, 0x200D,
                                         0x202E, 0x2060, 0xFEFF, 0xE000, 0xF8FF, 0xFFFD, 0xFFFF,
                                         0x10FFFF, 0xF0000, 0xE0001])))
    return "".join(kinds)


def _fixed():
    """Strings written by hand, each for one trap."""
    return [
        "", " ", "  ", "   ", "\n", "\r\n", "\r", "\t", "\n\n", " \n", "\n ", "  \n \n x  ",
        "\r\n\r\n", "a\r\nb\rc\nd", "x\n\r\ny", "\t\tif", "a\tb", "Hello world", " Hello world",
        "Hello  world!!\n\n  I'LL go", "don't 12345 x=3.14;\r\n\tret", "e\u0301a naïve CamelHTML's",
        "हिन्दी ٣٤٥", "你好世界123 こんにちは。", "  \n \n x  ", "//path/to\n#if(x){}",
        "a\u00a0b\u3000c", "1234567890" * 5, "'s 't 're 've 'm 'll 'd", "'S'T'RE'VE'M'LL'D",
        "it'\u017f fine", "I'\u017fa", "'", "''", "'''", "' s", "'ss", "'rex", "don''t",
        "!!!!!!", "!!!\n!!!", "!!!\r\n\r\n", " !\n", " !!", "  !!", "...\n\n\n", "\n!", "-\n-\r-",
        "a" * 300, " " * 300, "\n" * 200, "ab" * 200, "=" * 129, "é" * 120, "\u0301" * 60,
        "e\u0301" * 40, "漢" * 90, "😀" * 40, "٣" * 50, " a" * 100, "\t" * 77 + "x", " \n" * 60,
        "\u0301", " \u0301", "\n\u0301", "\u0301a", "a\u0301", "1\u0301", "!\u0301", "\u0301\u0301 \u0301",
        "\u200b", "a\u200bb", "\u200d", "\ufeffstart", "x\ufeff", "\u2060\u2060", "\u00ad", "co\u00adop",
        "\u202eabc\u202c", "\ue000\uf8ff", "\U000f0000\U0010ffff", "\ufffd", "\ufffe\uffff",
        "\x00", "a\x00b", "\x00\x00\x00", "\x1b[31mred\x1b[0m", "\x7f\x80\x9f", "\x01\x02\x03 \x04",
        "\u0085", "a\u0085b", "\u2028\u2029", "a\u2028b", "\u1680x", "\u2007\u202f\u205f", "\v\f", "a\vb",
        "Ångström A\u030angstro\u0308m", "ﬁne ﬀ ﬃ", "Ⅷ ⅷ ½ ² ₃ ① ㊿ 〇", "1\u20e3", "1️⃣2️⃣",
        "👩‍👩‍👧‍👦", "👍🏽👍🏿", "🇩🇪🇫🇷🇯", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "❤️❤", "a👍b 👍 c", "\u200d👍", "☝🏻☝",
        "क्षत्रिय ज्ञान", "ক্ষ ত্র", "க்ஷ ஸ்ரீ", "ക്ഷ", "မြန်མာ", "ភាសាខ្មែរ", "བོད་སྐད།", "ไทยภาษา ๑๒๓",
        "ລາວ ໑໒", "العَرَبِيَّة ١٢٣", "עִבְרִית", "ܐܪܡܝܐ", "ދިވެހި", "ᏣᎳᎩ", "ᐃᓄᒃᑎᑐᑦ", "ᚠᚢᚦ", "ᠮᠣᠩᠭᠣᠯ",
        "ꦗꦮ", "𐌲𐌿𐍄", "𐐀𐐨", "𒀀𒀁", "𓀀𓁐", "𝔘𝔫𝔦 𝟘𝟙𝟚", "𞤀𞤣𞤤𞤢𞤥", "𠀀𠀁", "ｆｕｌｌ　ｗｉｄｔｈ １２３",
        "한국어 ᄒ\u1161ᆫ", "ｶﾞｷﾞ カ\u3099", "ヶ々〆", "「引用」、。", "¿Qué? ¡Sí!", "„Zitat“ «guillemets» ‘x’",
        "İstanbul ıI iİ", "ΣΑΣ σας ς", "ẞß ǅǆ", "ŉ ǰ", "x²+y³=z⁴", "∑∫√∞≠≤", "→⇒=>", "$100 €50 £3 ¥9 ₿1",
        "`code` **bold** _it_ ~~x~~", "<html><body class=\"a\">&amp;</body></html>", "C:\\dir\\file.txt",
        "foo_bar fooBar FooBAR foo-bar", "0x1F 1e-9 1_000_000 3.14f 0b101", "a.b.c()[0]->d::e",
        "if(a&&b||!c){return;}", "\"quoted 'inner' text\"", "#!/bin/sh\nset -eu\n", "%s %d %%\n",
        "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        "a<|im_end|>b", " <|im_end|> ", "\n<|im_end|>\n", "<|im_end|><|im_end|>", "<|im_end", "|im_end|>",
        "<<|im_end|>>", "<|im_<|im_end|>end|>", "<|IM_END|>", "<|mask|><|unknown|>", "[PAD7]",
        "<think>\nx\n</think>\n\ny", "x<think>", "<think><think>", "<tool_call>{\"a\": 1}</tool_call>",
        "<br>", "<br><br>", "<br><br><br>", "<br><br", "=>", "=>===", ">===", "==>===", "=>=>", ">====",
        "«é»", "«e\u0301»", "x«é»y", "« é »", "hello<|endoftext|>", "  <think>  ", "<|endoftext|>\u0301",
        "don<br>'t", "1<br>2", "\n<br>\n\n<br>", "🇩<br>🇪",
    ]


def hostile_texts():
    """The test strings in a fixed order: by hand, sentences, random mixtures, NFD forms."""
    rng = random.Random(5)
    out = _fixed()
    out += SENTENCES
    out += [unicodedata.normalize("NFD", s) for s in SENTENCES[3:14]]
    out += [unicodedata.normalize("NFKC", s) for s in ("ﬁ Ⅷ ｱ", "ẛ\u0323", "한글 ²")]
    for lo, hi in SCRIPTS:
        out.append(_word(rng, lo, hi, 5) + " " + _word(rng, lo, hi, 2) + "\u0301" + _word(rng, lo, hi, 2))
    out += ["".join(chr(d + i) for i in range(10)) for d in DIGIT_STARTS]
    out += [_mixed(rng) for _ in range(220)]
    seen = set()
    return [t for t in out if not (t in seen or seen.add(t))]
